"""Films of a policy at work: .mp4 or .gif."""

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
from mepg.system import new_file

Picture = npt.NDArray[np.uint8]  # [height, width, 3]
Taken = Callable[[], Picture]  # a camera that takes the picture when it is needed
Writer = Generator[
    None, tuple[Taken, float], None
]  # cameras are sent to it, and how many pictures there are in a second


class Film:
    """A file that pictures are added to; whole, or not there at all."""

    def __init__(self, path: Path) -> None:
        if path.suffix not in _KINDS:
            raise UsageError(f"a film is {' or '.join(_KINDS)}, not {path.name!r}")
        self._path = path
        self._temporary = path.with_name(f".{path.stem}.writing{path.suffix}")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = _KINDS[path.suffix](self._temporary)
        next(self._writer)

    def add(self, take: Taken, fps: float) -> None:
        """Add a picture; `fps` of them are shown in a second. One that would not be shown is not taken."""
        self._writer.send((take, fps))

    def __enter__(self) -> Self:
        self._held = new_file(self._temporary)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._held, contextlib.ExitStack() as undo:
            undo.callback(self._temporary.unlink, missing_ok=True)
            self._writer.close()
            if kind is None and self._temporary.stat().st_size:
                self._temporary.rename(self._path)
                undo.pop_all()


def _mp4(path: Path) -> Writer:
    """Run ffmpeg ourselves: imageio_ffmpeg's own writer does not check whether it succeeded."""
    try:
        import imageio_ffmpeg
    except ImportError:
        raise UsageError("an .mp4 needs ffmpeg: pip install 'mepg[video]'; a .gif does not") from None
    take, fps = yield
    picture = take()
    height, width, _ = picture.shape
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
    even = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p"]  # what every player takes
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", *raw, *even, str(path)]
    process: Any = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        while True:
            process.stdin.write(picture.tobytes())
            take, _ = yield
            picture = take()
    except (GeneratorExit, BrokenPipeError):
        pass
    finally:
        _, errors = process.communicate()
        if process.returncode:
            raise RunFailure(f"ffmpeg could not write {path.name}: {errors.decode(errors='replace').strip()}") from None


def _gif(path: Path) -> Writer:
    kept: list[Image.Image] = []
    take, fps = yield
    every = max(1, round(fps / 25))  # viewers show a GIF no faster
    try:
        for seen in itertools.count():
            if seen % every == 0:
                kept.append(Image.fromarray(take()).quantize(64))
            take, _ = yield
    except GeneratorExit:
        kept[0].save(path, save_all=True, append_images=kept[1:], duration=1000 * every / fps, loop=0)


_KINDS: dict[str, Callable[[Path], Writer]] = {".mp4": _mp4, ".gif": _gif}
