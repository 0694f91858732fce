"""Films of episodes."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from PIL import Image

from ex2.arrays import Array
from ex2.errors import UsageError

KINDS = (".mp4", ".gif")
SMALLEST = 240  # pixels a side: smaller pictures are enlarged


class Film:
    """Frames into a file: .mp4 as they come (H.264, by the ffmpeg of imageio-ffmpeg), .gif at the end (by Pillow)."""

    def __init__(self, path: str | Path, frames_per_second: float) -> None:
        self.path, self.frames_per_second = Path(path), frames_per_second
        if self.path.suffix not in KINDS:
            raise UsageError(f"The video {self.path} is of no known kind: its name must end in {' or '.join(KINDS)}.")
        if not self.path.parent.is_dir():
            raise UsageError(f"The folder {self.path.parent} of the video does not exist: make it, or choose another name.")
        self._new = not self.path.exists()
        try:
            with open(self.path, "ab"):
                pass
        except OSError as error:
            raise UsageError(f"The video {self.path} cannot be written ({error.strerror}): choose another name.") from None
        self._frames: list[Image.Image] = []
        self._writer: Any = None

    def __enter__(self) -> Film:
        return self

    def add(self, frame: Array | None) -> None:
        """A frame, uint8 [height, width, 3]."""
        assert frame is not None
        picture = Image.fromarray(frame)
        times = max(-(-SMALLEST // min(picture.size)), 1)
        picture = picture.resize((times * picture.width, times * picture.height), Image.Resampling.NEAREST)
        if self.path.suffix == ".gif":
            self._frames.append(picture.quantize(64))
            return
        if self._writer is None:
            self._writer = self._begin(picture.size)
        self._writer.send(picture.tobytes())

    def _begin(self, size: tuple[int, int]) -> Any:
        try:
            import imageio_ffmpeg
        except ImportError:
            raise UsageError("Videos as .mp4 need imageio-ffmpeg: pip install 'ex2[video]', or name a .gif instead.") from None
        writer = imageio_ffmpeg.write_frames(
            str(self.path), size, fps=self.frames_per_second, codec="libx264", macro_block_size=2, ffmpeg_log_level="error"
        )
        writer.send(None)
        return writer

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._writer is not None:
            self._writer.close()
        elif self._frames and kind is None:
            first, *rest = self._frames
            first.save(self.path, save_all=True, append_images=rest, duration=1_000 / self.frames_per_second, loop=0)
        elif self._new:  # nothing came of it
            self.path.unlink(missing_ok=True)
