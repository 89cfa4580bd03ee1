"""PyBullet's tasks, with the same bits in fewer calls.

The package that defines them asks the simulator for every joint and every part of a robot by itself, which takes longer
than the physics. Here a robot is read in three or four calls. The arithmetic is the package's: the same operations on
the same numbers in the same order. The environment variable MEPG_BULLET=plain leaves the package as it is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np


def patch_bullet(env: gymnasium.Env[Any, Any]) -> None:
    """Let an environment of the package, and its robot, use the functions below; any other is left alone."""
    bare: Any = env.unwrapped
    if not type(bare).__module__.startswith("pybullet_envs_gymnasium.") or os.environ.get("MEPG_BULLET") == "plain":
        return
    from pybullet_envs_gymnasium.gym_locomotion_envs import WalkerBaseBulletEnv
    from pybullet_envs_gymnasium.robot_locomotors import WalkerBase

    plain_reset = bare.reset

    def reset(*, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        answer = plain_reset(seed=seed, options=options)
        if not isinstance(bare._p, Client):  # the package connects at the first reset
            _adopt(bare, Client(bare._p))
        return answer

    bare.reset = reset
    # A robot of its own may compute something else.
    if issubclass(type(bare), WalkerBaseBulletEnv) and type(bare.robot).calc_state is WalkerBase.calc_state:
        walker = Walker(bare)
        bare.robot.calc_state = walker.observe
        bare.step = walker.step
        if type(bare.robot).apply_action is WalkerBase.apply_action:
            bare.robot.apply_action = walker.act


class Client:
    """The package's client, which looks a function up once instead of at every call."""

    def __init__(self, client: Any) -> None:
        self._kept_alive = client  # it disconnects when it is collected
        self._client: int = client._client

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._kept_alive, name)
        if name != "disconnect":
            setattr(self, name, found)
        return found


def _adopt(env: Any, client: Client) -> None:
    robot = env.robot
    for each in (env, robot, env.scene, env.scene.cpp_world, *robot.parts.values(), *robot.jdict.values()):
        each._p = client


class Walker:
    """An environment with a robot that walks: Ant, HalfCheetah, Hopper, Walker2D and the humanoids."""

    def __init__(self, env: Any) -> None:
        self._env, self._robot = env, env.robot
        self._known: tuple[Any, ...] = ()  # what the following is about
        self._reads: list[Callable[[], list[Any]]] = []  # each gives poses, of some parts
        self._order: list[int] = []  # of all parts, among those poses
        self._torso = 0  # among those poses
        self._joints: tuple[int, list[int]] = (0, [])  # a body, and which joints of it
        self._limits: list[tuple[float, float]] = []  # of each joint, where it begins and how far it goes

    def act(self, action: Any) -> None:
        """Torques on all joints."""
        robot, numbers = self._robot, np.asarray(action).tolist()
        assert all(map(math.isfinite, numbers))
        torques = [
            robot.power * joint.power_coef * min(max(a, -1.0), 1.0)
            for a, joint in zip(numbers, robot.ordered_joints, strict=True)
        ]
        robot._p.setJointMotorControlArray(*self._joints, robot._p.TORQUE_CONTROL, forces=torques)

    def observe(self) -> Any:
        """Where the robot is and how it moves; keeps what rewards need."""
        robot = self._robot
        self._learn_parts()
        j = self._read_joints()
        robot.joint_speeds = j[1::2]
        robot.joints_at_limit = np.count_nonzero(np.abs(j[0::2]) > 0.99)

        poses = [pose for read in self._reads for pose in read()]
        places = np.array([poses[i][0] for i in self._order])
        # One column after the other: a sum along an axis goes in another order.
        mean_x, mean_y = (np.add.reduce(places[:, axis]) / len(places) for axis in (0, 1))
        position, orientation = poses[self._torso]
        robot.body_xyz = (mean_x, mean_y, np.float64(position[2]))
        robot.body_real_xyz = np.array(position)
        robot.body_rpy = robot._p.getEulerFromQuaternion(orientation)
        z = robot.body_xyz[2]
        if robot.initial_z is None:
            robot.initial_z = z
        roll, pitch, yaw = robot.body_rpy
        aside, ahead = robot.walk_target_y - mean_y, robot.walk_target_x - mean_x
        robot.walk_target_theta = np.arctan2(aside, ahead)
        away = np.array([aside, ahead])
        robot.walk_target_dist = np.float64(math.sqrt(away.dot(away)))
        angle = robot.walk_target_theta - yaw

        cos, sin = np.cos(-yaw), np.sin(-yaw)
        turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
        vx, vy, vz = np.dot(turn, robot.robot_body.speed())
        body = [z - robot.initial_z, np.sin(angle), np.cos(angle), 0.3 * vx, 0.3 * vy, 0.3 * vz, roll, pitch]
        state = np.concatenate([np.array(body, dtype=np.float32), j, robot.feet_contact])
        return np.minimum(np.maximum(state, np.float32(-5)), np.float32(5))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """What happens, and its rewards: alive, progress, the motors' cost, joints at their limits."""
        env, robot = self._env, self._robot
        robot.apply_action(action)
        env.scene.global_step()
        state = robot.calc_state()
        env._alive = float(robot.alive_bonus(state[0] + robot.initial_z, robot.body_rpy[1]))
        done = env._isDone() or not all(map(math.isfinite, state.tolist()))

        before = env.potential
        env.potential = robot.calc_potential()
        self._feel_the_ground()
        work = np.abs(action * robot.joint_speeds)
        motors = env.electricity_cost * float(np.add.reduce(work) / len(work))
        squares = np.square(action)
        motors += env.stall_torque_cost * float(np.add.reduce(squares) / len(squares))
        at_limit = float(env.joints_at_limit_cost * robot.joints_at_limit)
        env.rewards = [env._alive, float(env.potential - before), motors, at_limit, 0.0]
        total = sum(env.rewards)
        env.reward += total
        return state, total, bool(done), False, {}

    def _learn_parts(self) -> None:
        """How all parts are read: again after a reset has added some, or connected anew."""
        robot = self._robot
        known = (robot._p._client, len(robot.parts))
        if known == self._known:
            return
        parts = list(robot.parts.values())
        self._known, self._reads, found = known, [], []
        for body in dict.fromkeys(part.bodies[part.bodyIndex] for part in parts):
            links = [part.bodyPartIndex for part in parts if part.bodies[part.bodyIndex] == body]
            if -1 in links:
                self._reads.append(partial(_base, robot._p, body))
                found.append((body, -1))
            if moving := [link for link in links if link >= 0]:
                self._reads.append(partial(_links, robot._p, body, moving))
                found += [(body, link) for link in moving]
        where = {each: number for number, each in enumerate(found)}
        self._order = [where[part.bodies[part.bodyIndex], part.bodyPartIndex] for part in parts]
        joint, torso = robot.ordered_joints[0], robot.robot_body
        self._joints = joint.bodies[joint.bodyIndex], [each.jointIndex for each in robot.ordered_joints]
        self._limits = [(each.lowerLimit, each.upperLimit - each.lowerLimit) for each in robot.ordered_joints]
        self._torso = where[torso.bodies[torso.bodyIndex], torso.bodyPartIndex]

    def _read_joints(self) -> Any:
        """Of each joint its position, from -1 to 1 between its limits, and a tenth of its speed."""
        states = self._robot._p.getJointStates(*self._joints)
        numbers = []
        for (lower, range_), (x, vx, _, _) in zip(self._limits, states, strict=True):
            numbers += [2 * (x - lower) / range_ - 1.0, 0.1 * vx]
        return np.array(numbers, dtype=np.float32)

    def _feel_the_ground(self) -> None:
        robot, feet = self._robot, self._robot.feet
        body = feet[0].bodies[feet[0].bodyIndex]
        touching = {
            point[3]
            for ground, link in self._env.ground_ids
            for point in robot._p.getContactPoints(body, ground)
            if point[4] == link
        }
        for i, foot in enumerate(feet):
            robot.feet_contact[i] = foot.bodyPartIndex in touching


def _base(client: Client, body: int) -> list[Any]:
    return [client.getBasePositionAndOrientation(body)]


def _links(client: Client, body: int, links: list[int]) -> list[Any]:
    return [state[:2] for state in client.getLinkStates(body, links)]
