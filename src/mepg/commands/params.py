"""count the parameters of every algorithm, as the paper does and in total"""

from mepg.commands import Answer, Arguments, Parser

COMPUTES = True


def add_arguments(parser: Parser) -> None:
    parser.add_argument("--env", metavar="ID", help="count for this environment instead of the paper's eight")


def answer(arguments: Arguments) -> Answer:
    from mepg.algos import algorithms, count_parameters
    from mepg.envs.env import Env
    from mepg.envs.simulators import full_id
    from mepg.jax_defaults import with_jax_defaults
    from mepg.paper.tasks import PAPER_TASKS

    tasks = PAPER_TASKS
    if arguments.env is not None:
        env_id = full_id(arguments.env)
        tasks = {env_id: PAPER_TASKS.get(env_id) or Env(env_id).sizes}
    kind = next(iter(tasks.values())).action_kind
    able = {name: algorithm for name, algorithm in algorithms().items() if kind in algorithm.actions}
    counts = {
        name: {env: with_jax_defaults(count_parameters)(algorithm, sizes)._asdict() for env, sizes in tasks.items()}
        for name, algorithm in able.items()
    }
    lines = ["Parameters in thousands, target networks included: as the paper counts | in total", ""]
    headings = [env.replace("BulletEnv-v0", "") for env in tasks]
    headings = [heading.replace("InvertedPendulumSwingup", "Swingup") for heading in headings]
    headings = [heading.replace("InvertedDoublePendulum", "DoublePendulum") for heading in headings]
    lines.append(f"{'':<15}" + "".join(f"{heading:>18}" for heading in headings))
    for name, row in counts.items():
        cells = (f"{c['as_paper'] / 1000:.0f} | {c['as_is'] / 1000:.0f}" for c in row.values())
        lines.append(f"{name:<15}" + "".join(f"{cell:>18}" for cell in cells))
    lines += ["", "The paper counts a Gaussian policy without its log-std outputs (D11)."]
    return Answer(counts, "\n".join(lines))
