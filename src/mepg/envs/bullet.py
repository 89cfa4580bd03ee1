"""PyBullet's tasks with fewer calls of the simulator, and the same bits.

The package that defines the tasks calls the simulator for every joint and every part of a robot, which takes longer
than the physics. Here three or four calls read a whole robot. The arithmetic is the package's: the same operations on
the same numbers in the same order. With the environment variable MEPG_BULLET=plain, the package is not patched.
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
    """Replace methods of an environment of the package, and of its robot. Other environments are left alone."""
    bare: Any = env.unwrapped
    if not type(bare).__module__.startswith("pybullet_envs_gymnasium.") or os.environ.get("MEPG_BULLET") == "plain":
        return
    from pybullet_envs_gymnasium.gym_locomotion_envs import WalkerBaseBulletEnv
    from pybullet_envs_gymnasium.robot_locomotors import WalkerBase

    original_reset = bare.reset

    def reset(*, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        result = original_reset(seed=seed, options=options)
        if not isinstance(bare._p, Client):  # the package connects at the first reset
            _set_client(bare, Client(bare._p))
        return result

    bare.reset = reset
    # A subclass of the robot may compute its state in another way.
    if issubclass(type(bare), WalkerBaseBulletEnv) and type(bare.robot).calc_state is WalkerBase.calc_state:
        walker = Walker(bare)
        bare.robot.calc_state = walker.calc_state
        bare.step = walker.step
        if type(bare.robot).apply_action is WalkerBase.apply_action:
            bare.robot.apply_action = walker.apply_action


class Client:
    """The package's client, with its functions cached: the original looks them up at every call."""

    def __init__(self, client: Any) -> None:
        self._original = client  # kept alive: it disconnects when it is garbage-collected
        self._client: int = client._client

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._original, name)
        if name != "disconnect":
            setattr(self, name, function)
        return function


def _set_client(env: Any, client: Client) -> None:
    robot = env.robot
    for owner in (env, robot, env.scene, env.scene.cpp_world, *robot.parts.values(), *robot.jdict.values()):
        owner._p = client


class Walker:
    """Methods for an environment with a walking robot: Ant, HalfCheetah, Hopper, Walker2D and the humanoids."""

    def __init__(self, env: Any) -> None:
        self._env, self._robot = env, env.robot
        self._layout: tuple[Any, ...] = ()  # client and number of parts for which the following holds
        self._pose_readers: list[Callable[[], list[Any]]] = []  # each returns the poses of some parts
        self._pose_index: list[int] = []  # of each part, among these poses
        self._torso = 0  # its index among these poses
        self._joints: tuple[int, list[int]] = (0, [])  # a body, and the indices of its joints
        self._limits: list[tuple[float, float]] = []  # of each joint: lower limit and range

    def apply_action(self, action: Any) -> None:
        """Apply torques to all joints."""
        robot, numbers = self._robot, np.asarray(action).tolist()
        assert all(map(math.isfinite, numbers))
        torques = [
            robot.power * joint.power_coef * min(max(a, -1.0), 1.0)
            for a, joint in zip(numbers, robot.ordered_joints, strict=True)
        ]
        robot._p.setJointMotorControlArray(*self._joints, robot._p.TORQUE_CONTROL, forces=torques)

    def calc_state(self) -> Any:
        """The observation. Also sets the robot's attributes that the rewards depend on."""
        robot = self._robot
        self._update_layout()
        j = self._read_joints()
        robot.joint_speeds = j[1::2]
        robot.joints_at_limit = np.count_nonzero(np.abs(j[0::2]) > 0.99)

        poses = [pose for read in self._pose_readers for pose in read()]
        positions = np.array([poses[i][0] for i in self._pose_index])
        # Column by column: a sum along an axis adds in another order.
        mean_x, mean_y = (np.add.reduce(positions[:, axis]) / len(positions) for axis in (0, 1))
        position, orientation = poses[self._torso]
        robot.body_xyz = (mean_x, mean_y, np.float64(position[2]))
        robot.body_real_xyz = np.array(position)
        robot.body_rpy = robot._p.getEulerFromQuaternion(orientation)
        z = robot.body_xyz[2]
        if robot.initial_z is None:
            robot.initial_z = z
        roll, pitch, yaw = robot.body_rpy
        dy, dx = robot.walk_target_y - mean_y, robot.walk_target_x - mean_x
        robot.walk_target_theta = np.arctan2(dy, dx)
        to_target = np.array([dy, dx])
        robot.walk_target_dist = np.float64(math.sqrt(to_target.dot(to_target)))
        angle = robot.walk_target_theta - yaw

        cos, sin = np.cos(-yaw), np.sin(-yaw)
        rotation = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
        vx, vy, vz = np.dot(rotation, robot.robot_body.speed())
        body = [z - robot.initial_z, np.sin(angle), np.cos(angle), 0.3 * vx, 0.3 * vy, 0.3 * vz, roll, pitch]
        state = np.concatenate([np.array(body, dtype=np.float32), j, robot.feet_contact])
        return np.minimum(np.maximum(state, np.float32(-5)), np.float32(5))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """A step; rewards for being alive and for progress, minus costs of motors and of joints at their limits."""
        env, robot = self._env, self._robot
        robot.apply_action(action)
        env.scene.global_step()
        state = robot.calc_state()
        env._alive = float(robot.alive_bonus(state[0] + robot.initial_z, robot.body_rpy[1]))
        done = env._isDone() or not all(map(math.isfinite, state.tolist()))

        previous_potential = env.potential
        env.potential = robot.calc_potential()
        self._update_feet_contact()
        work = np.abs(action * robot.joint_speeds)
        motors = env.electricity_cost * float(np.add.reduce(work) / len(work))
        squares = np.square(action)
        motors += env.stall_torque_cost * float(np.add.reduce(squares) / len(squares))
        at_limit = float(env.joints_at_limit_cost * robot.joints_at_limit)
        env.rewards = [env._alive, float(env.potential - previous_potential), motors, at_limit, 0.0]
        total = sum(env.rewards)
        env.reward += total
        return state, total, bool(done), False, {}

    def _update_layout(self) -> None:
        """Find out how to read all parts, at first and after a reset that has added parts or connected again."""
        robot = self._robot
        layout = (robot._p._client, len(robot.parts))
        if layout == self._layout:
            return
        parts = list(robot.parts.values())
        self._layout, self._pose_readers, read = layout, [], []
        for body in dict.fromkeys(part.bodies[part.bodyIndex] for part in parts):
            links = [part.bodyPartIndex for part in parts if part.bodies[part.bodyIndex] == body]
            if -1 in links:
                self._pose_readers.append(partial(_base_pose, robot._p, body))
                read.append((body, -1))
            if moving := [link for link in links if link >= 0]:
                self._pose_readers.append(partial(_link_poses, robot._p, body, moving))
                read += [(body, link) for link in moving]
        index = {part: number for number, part in enumerate(read)}
        self._pose_index = [index[part.bodies[part.bodyIndex], part.bodyPartIndex] for part in parts]
        joint, torso = robot.ordered_joints[0], robot.robot_body
        self._joints = joint.bodies[joint.bodyIndex], [joint.jointIndex for joint in robot.ordered_joints]
        self._limits = [(joint.lowerLimit, joint.upperLimit - joint.lowerLimit) for joint in robot.ordered_joints]
        self._torso = index[torso.bodies[torso.bodyIndex], torso.bodyPartIndex]

    def _read_joints(self) -> Any:
        """For each joint its position, scaled to [-1, 1] between its limits, and a tenth of its speed."""
        states = self._robot._p.getJointStates(*self._joints)
        numbers = []
        for (lower, range_), (x, vx, _, _) in zip(self._limits, states, strict=True):
            numbers += [2 * (x - lower) / range_ - 1.0, 0.1 * vx]
        return np.array(numbers, dtype=np.float32)

    def _update_feet_contact(self) -> None:
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


def _base_pose(client: Client, body: int) -> list[Any]:
    return [client.getBasePositionAndOrientation(body)]


def _link_poses(client: Client, body: int, links: list[int]) -> list[Any]:
    return [state[:2] for state in client.getLinkStates(body, links)]
