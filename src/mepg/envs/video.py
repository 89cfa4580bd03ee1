"""Videos of episodes: .mp4 or .gif."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from PIL import Image

from mepg.errors import RunFailure, UsageError
from mepg.system import new_file, temporary_path

Frame = npt.NDArray[np.uint8]  # [height, width, 3]
Render = Callable[[], Frame]
Writer = Generator[None, tuple[Render, float], None]  # receives functions that render a frame, and frames per second


class Video:
    """A video file that frames are added to. After an error, no file is left."""

    def __init__(self, path: Path) -> None:
        if path.suffix not in _KINDS:
            raise UsageError(f"a video must be {' or '.join(_KINDS)}, not {path.name!r}")
        self._path = path
        self._temporary = temporary_path(path, path.suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = _KINDS[path.suffix](self._temporary)
        next(self._writer)

    def add(self, render: Render, fps: float) -> None:
        """Add a frame, in a video of `fps` frames per second. A frame that the file would leave out is not rendered."""
        self._writer.send((render, fps))

    def __enter__(self) -> Self:
        self._held = new_file(self._temporary)
        return self

    def __exit__(self, exception_type: type[BaseException] | None, *_: object) -> None:
        with self._held, contextlib.ExitStack() as undo:
            undo.callback(self._temporary.unlink, missing_ok=True)
            self._writer.close()
            if exception_type is None and self._temporary.stat().st_size:
                self._temporary.rename(self._path)
                undo.pop_all()


def _mp4(path: Path) -> Writer:
    """Runs ffmpeg directly: imageio_ffmpeg's own writer does not check whether ffmpeg succeeded."""
    try:
        import imageio_ffmpeg
    except ImportError:
        raise UsageError("an .mp4 needs ffmpeg: pip install 'mepg[video]'; a .gif does not") from None
    render, fps = yield
    frame = render()
    height, width, _ = frame.shape
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
    even = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p"]  # which every player supports
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", *raw, *even, str(path)]
    process: Any = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        while True:
            process.stdin.write(frame.tobytes())
            render, _ = yield
            frame = render()
    except (GeneratorExit, BrokenPipeError):
        pass
    finally:
        _, errors = process.communicate()
        if process.returncode:
            raise RunFailure(f"ffmpeg could not write {path.name}: {errors.decode(errors='replace').strip()}") from None


def _gif(path: Path) -> Writer:
    frames: list[Image.Image] = []
    render, fps = yield
    every = max(1, round(fps / 25))  # viewers show no more than 25 frames per second
    try:
        for number in itertools.count():
            if number % every == 0:
                frames.append(Image.fromarray(render()).quantize(64))
            render, _ = yield
    except GeneratorExit:
        frames[0].save(path, save_all=True, append_images=frames[1:], duration=1000 * every / fps, loop=0)


_KINDS: dict[str, Callable[[Path], Writer]] = {".mp4": _mp4, ".gif": _gif}
