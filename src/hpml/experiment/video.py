"""An episode as a film: frames to mp4 or GIF, by the file's ending."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ENDINGS = (".mp4", ".gif")
LEAST = 320  # pixels of the shorter side: an agent's view has 40 to 88
GAP = 2  # pixels between the agents' views


def check_ending(path: Path) -> Path:
    """The path, or one sentence where its ending is no film's."""
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"A film ends in {' or '.join(ENDINGS)}, got {path.name!r}.")
    return path


def tile(views: Any) -> np.ndarray:
    """The agents' views (agents, height, width, 3) as one picture, in rows that make it about square."""
    agents, height, width, _ = np.shape(views)
    across = int(np.ceil(np.sqrt(agents * height / width)))
    down = -(-agents // across)
    picture = np.zeros((down * (height + GAP) - GAP, across * (width + GAP) - GAP, 3), np.uint8)
    for agent, view in enumerate(np.asarray(views)):
        row, column = divmod(agent, across)
        top, left = row * (height + GAP), column * (width + GAP)
        picture[top : top + height, left : left + width] = view
    return picture


def enlarge(frame: np.ndarray) -> np.ndarray:
    """The frame with every pixel repeated until it can be seen; both sides are even, as the mp4 codec wants."""
    times = max(1, -(-LEAST // min(frame.shape[:2])))
    large = frame.repeat(times, 0).repeat(times, 1)
    return np.pad(large, [(0, large.shape[0] % 2), (0, large.shape[1] % 2), (0, 0)])


def write_video(path: Path, frames: Sequence[np.ndarray], rate: int = 15) -> Path:
    """Write frames (height, width, 3) in bytes as a film with `rate` frames a second."""
    check_ending(path)
    if not len(frames):
        raise ValueError("A film needs at least one frame.")
    try:
        import imageio.v3 as imageio
        import imageio_ffmpeg  # noqa: F401 (the plug-in that mp4 needs)
    except ImportError as error:
        raise ValueError('Films need imageio and imageio-ffmpeg: pip install "hpml[train]".') from error
    path.parent.mkdir(parents=True, exist_ok=True)
    pictures = np.stack([enlarge(np.asarray(frame, np.uint8)) for frame in frames])
    temporary = path.with_name(f"half-{path.name}")  # a film that was cut short never has the name
    try:
        if path.suffix.lower() == ".gif":
            imageio.imwrite(temporary, pictures, duration=1000 / rate, loop=0)
        else:
            imageio.imwrite(temporary, pictures, fps=rate, codec="libx264", macro_block_size=2)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
