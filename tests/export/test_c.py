"""The C form: every algorithm's policy, compiled with warnings as errors, does what it does here."""

import re
import subprocess
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.core.normalise import with_normalised_obs
from mepg.core.policies import best_proposal
from mepg.core.types import Entry, Sizes
from mepg.export.c import to_c
from mepg.export.compiled import find_compiler, run_compiled
from mepg.export.operations import trace
from mepg.export.standalone import run
from tests.algos.discrete import dqn
from tests.conftest import EVERY_AGENT, jit_quickly, sizes_of
from tests.export.policies import SIZES, some_agent

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")
OBS = np.random.default_rng(1).standard_normal((64, SIZES.obs)).astype(np.float32)


@pytest.fixture
def compiler():
    return find_compiler() or pytest.skip("there is no C compiler")


def in_c(compiler, program, sizes=SIZES, obs=OBS):
    return run_compiled(compiler, to_c(program, sizes, {"algorithm": "any"}), sizes, obs, 1, STRICT)[0]


def assert_exports(compiler, agent, state, sizes=SIZES):
    act, obs = agent.exploit, OBS
    if sizes.action_kind == "discrete":  # far apart, or all would get the same action
        act, obs = partial(chosen, agent), 20 * OBS
    expected = np.asarray(jit_quickly(agent.exploit)(state, obs))
    found = in_c(compiler, trace(act, state, sizes.obs), sizes, obs)
    np.testing.assert_allclose(found[:, : expected.shape[1]], expected, atol=1e-5)
    assert np.std(expected) > 0.01, "a policy that does something"


@pytest.mark.parametrize("name", EVERY_AGENT)
def test_every_algorithm_exports(compiler, name):
    assert_exports(compiler, *some_agent(name), sizes_of(name))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ace", ["depth=3", "layer_norm=true"]),
        ("ace", ["actors=1"]),
        ("ace-flat", ["critics=3", "layer_norm=true", "policy_q=mean"]),
        ("me-sac+lcb", ["policy_average.use=both"]),
        ("sunrise", ["members=1", "hidden=8"]),
    ],
)
def test_and_so_do_its_variants(compiler, name, settings):
    assert_exports(compiler, *some_agent(name, settings))


def test_normalisation_is_part_of_the_program(compiler):
    agent, state = some_agent("me-sac")
    agent = with_normalised_obs(agent, SIZES)
    state = agent.init(jax.random.key(0))._replace(
        agent=state, mean=jnp.array([3.0, -2.0, 0.1]), variance=jnp.array([9.0, 0.0, 1e-4])
    )
    assert_exports(compiler, agent, state)


def chosen(agent, state, obs):
    return agent.exploit(state, obs).reshape(obs.shape[0]).astype(jnp.int32)


def test_a_discrete_policy_gives_the_actions_number(compiler):
    sizes, start = Sizes(3, 4, "discrete"), -2
    agent = dqn.build(dqn.spec, sizes)
    state = agent.init(jax.random.key(0))
    program = trace(lambda state, obs: chosen(agent, state, obs) + start, state, sizes.obs)
    found = in_c(compiler, program, sizes)[:, 0]
    np.testing.assert_array_equal(found, np.asarray(chosen(agent, state, OBS)) + start)
    assert {*found} <= {-2, -1, 0, 1}
    assert len({*found}) > 1
    text = to_c(program, sizes, {})
    assert "static inline int policy(const float *obs) {" in text
    assert "#define POLICY_ACTIONS 4" in text


@pytest.mark.parametrize("shape", [(), (1,), (2,), (1, 2), (2, 1)])
def test_actions_of_any_shape_are_numbers_one_after_the_other(compiler, shape):
    size = max(1, int(np.prod(shape)))
    state = np.random.default_rng(0).standard_normal((SIZES.obs, size)).astype(np.float32)
    program = trace(lambda state, obs: jnp.tanh(obs @ state).reshape(obs.shape[0], *shape), state, SIZES.obs)
    np.testing.assert_allclose(in_c(compiler, program, Sizes(SIZES.obs, size)), np.tanh(OBS @ state), atol=1e-6)


def every_operation(weights, obs):
    """What policies may be made of, beside what ours are."""
    x = jnp.concatenate([obs, jnp.exp(-obs), obs / 3], axis=1)  # [B, 9]
    x, rest = jnp.split(jnp.where(x > 0.5, jnp.log(1 + jnp.square(x)), jnp.maximum(x, -0.5) - 0.25), [8], axis=1)
    several = x.reshape(-1, 2, 4).transpose(0, 2, 1)  # [B, 4, 2]
    x = jnp.einsum("bij,jk->bik", several, weights) * jax.lax.rsqrt(1 + jnp.square(several).sum(axis=1, keepdims=True))
    lowest, highest = x.min(axis=(1, 2)), x.max(axis=1)
    picked = best_proposal(x.transpose(1, 0, 2), x.sum(axis=2).T)  # [B, 2]
    signs = (rest < 0).astype(jnp.float32)
    return jnp.concatenate([lowest[:, None], highest * picked, -signs, jnp.minimum(rest, 0.1)], axis=1)  # [B, 5]


def test_every_operation_means_what_it_means_in_numpy(compiler):
    weights = np.random.default_rng(2).standard_normal((2, 2)).astype(np.float32)
    program = trace(every_operation, weights, SIZES.obs)
    expected = run(program.operations, program.constants, OBS)["action"]
    np.testing.assert_allclose(np.asarray(every_operation(weights, OBS)), expected, atol=1e-5)
    np.testing.assert_allclose(in_c(compiler, program, Sizes(3, 5)), expected, atol=1e-5)


def test_a_number_that_is_none_goes_through(compiler):
    """Nobody is told to turn left because a sensor has failed."""
    agent, state = some_agent("me-sac")
    obs = np.full((1, SIZES.obs), np.nan, np.float32)
    assert np.isnan(in_c(compiler, trace(agent.exploit, state, SIZES.obs), obs=obs)).all()


def test_a_policy_that_looks_at_nothing(compiler):
    always = np.array([0.5, np.inf], np.float32)
    program = trace(lambda state, obs: jnp.broadcast_to(state, (obs.shape[0], 2)), always, SIZES.obs)
    np.testing.assert_array_equal(in_c(compiler, program)[0], [0.5, np.inf])


def test_a_strangers_words_stay_in_their_comment(compiler):
    agent, state = some_agent("ddpg")
    program = trace(agent.exploit, state, SIZES.obs)
    about = {"env": '*/ #error "ran" /*', "algorithm": "a\n#error \\\n??/\n*\u2028//**/"}
    text = to_c(program, SIZES, about)
    assert text.partition("\n")[0].count("*/") == 1
    assert text.count("#error") == text.partition("\n")[0].count("#error")
    assert run_compiled(compiler, text, SIZES, OBS, 1, STRICT)


def test_files_that_include_it_get_a_copy_each_and_may_include_it_twice(compiler, tmp_path):
    """Two policies are two files with one of them each; both in one file is refused by the compiler."""
    for name in ("sac", "ddpg"):
        agent, state = some_agent(name)
        (tmp_path / f"{name}.h").write_text(to_c(trace(agent.exploit, state, SIZES.obs), SIZES, {}))
        text = f'#include "{name}.h"\n#include "{name}.h"\nvoid {name}(const float *obs, float *action);\n'
        text += f"void {name}(const float *obs, float *action) {{ policy(obs, action); }}\n"
        (tmp_path / f"{name}.c").write_text(text)
    text = '#include "sac.h"\nvoid sac(const float *, float *);\nvoid ddpg(const float *, float *);\n'
    text += "int main(void) { float x[3] = {0}; sac(x, x); ddpg(x, x); return 0; }\n"  # and one that does not call it
    (tmp_path / "main.c").write_text(text)
    (tmp_path / "both.c").write_text('#include "sac.h"\n#include "ddpg.h"\nint main(void) { return 0; }\n')

    def compiles(*files):
        done = subprocess.run([*compiler, *STRICT, *files, "-lm", "-o", "main"], cwd=tmp_path, capture_output=True)
        return done.returncode == 0

    assert compiles("main.c", "sac.c", "ddpg.c")
    assert subprocess.run([tmp_path / "main"]).returncode == 0
    assert not compiles("both.c")


def test_names_of_entries_that_c_could_not_tell_apart(compiler):
    """Of letters that C does not know, and of a comment that would end."""
    names = ["a.b", "a_b", "a b", "\u00e9t\u00e9 */ int x;"]
    entries = tuple(Entry(name, place, place + 1) for place, name in enumerate(names))
    agent, state = some_agent("me-sac")
    sizes = SIZES._replace(entries=entries[:3])
    header = to_c(trace(agent.exploit, state, 3), sizes._replace(entries=entries), {})
    offsets = dict(re.findall(r"#define (POLICY_OBS_\w+) (\d+)", header))
    assert sorted(offsets.values()) == ["0", "1", "2", "3"]
    run_compiled(compiler, header, sizes, OBS, 1, STRICT)
