"""Films of a policy at work: .mp4 or .gif."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
from PIL import Image

from mepg.errors import RunFailure, UsageError

Picture = npt.NDArray[np.uint8]  # [height, width, 3]


class Film:
    """A file that pictures are added to; whole, or not there at all."""

    def __init__(self, path: Path) -> None:
        if path.suffix not in _KINDS:
            raise UsageError(f"a film is {' or '.join(_KINDS)}, not {path.name!r}")
        self._path = path
        self._temporary = path.with_name(f".{path.stem}.writing{path.suffix}")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._add, self._end = _KINDS[path.suffix](self._temporary)
        self.pictures = 0

    def add(self, picture: Picture, fps: float) -> None:
        """One more; of all of them `fps` are shown in a second."""
        self._add(picture, fps)
        self.pictures += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.pictures:
                self._end()
            if kind is None and self.pictures:
                self._temporary.rename(self._path)
        finally:
            self._temporary.unlink(missing_ok=True)


Writing = tuple[Callable[[Picture, float], None], Callable[[], None]]  # add one, end


def _mp4(path: Path) -> Writing:
    try:
        import imageio_ffmpeg
    except ImportError:
        raise UsageError("an .mp4 needs ffmpeg: pip install 'mepg[video]'; a .gif does not") from None
    process: subprocess.Popen[bytes] | None = None

    def add(picture: Picture, fps: float) -> None:
        nonlocal process
        if process is None:
            height, width, _ = picture.shape
            raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
            even = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p"]  # what every player takes
            command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", *raw, *even, str(path)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(picture.tobytes())

    def end() -> None:
        assert process is not None
        _, errors = process.communicate()
        if process.returncode:
            raise RunFailure(f"ffmpeg could not write {path.name}: {errors.decode(errors='replace').strip()}")

    return add, end


def _gif(path: Path) -> Writing:
    kept: list[Image.Image] = []
    seen, milliseconds = 0, 0.0

    def add(picture: Picture, fps: float) -> None:
        nonlocal seen, milliseconds
        every = max(1, round(fps / 25))  # viewers show a GIF no faster
        milliseconds = 1000 * every / fps
        if seen % every == 0:
            kept.append(Image.fromarray(picture).quantize(64))
        seen += 1

    def end() -> None:
        first, *others = kept
        first.save(path, save_all=True, append_images=others, duration=milliseconds, loop=0)

    return add, end


_KINDS: dict[str, Callable[[Path], Writing]] = {".mp4": _mp4, ".gif": _gif}
