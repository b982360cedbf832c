"""An episode as a film: frames to mp4 or GIF, by the file's ending."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
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
    picture = np.full((down * (height + GAP) - GAP, across * (width + GAP) - GAP, 3), 96, np.uint8)
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


def film_package() -> Any:
    """imageio, or one sentence where it or its plug-in is missing."""
    try:
        import imageio.v2 as imageio
        import imageio_ffmpeg  # noqa: F401 (the plug-in that mp4 needs)
    except ImportError as error:
        raise ValueError('Films need imageio and imageio-ffmpeg: pip install "hpml[train]".') from error
    return imageio


@contextmanager
def filming(path: Path, rate: int = 15) -> Iterator[Callable[[Any], None]]:
    """A function that adds a frame (height, width, 3) in bytes to a film with `rate` frames a second.

    The film takes its name at the end: one that was cut short never has it.
    """
    check_ending(path)
    imageio = film_package()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"half-{path.name}")
    gif = path.suffix.lower() == ".gif"
    options: dict[str, Any] = {"duration": 1000 / rate, "loop": 0} if gif else {"fps": rate, "macro_block_size": 2}
    count = 0

    def add(frame: Any) -> None:
        nonlocal count
        count += 1
        writer.append_data(enlarge(np.asarray(frame, np.uint8)))

    try:
        writer: Any
        with warnings.catch_warnings():
            # JAX warns of forks; this one becomes ffmpeg at once.
            warnings.filterwarnings("ignore", message="os.fork", category=RuntimeWarning)
            # By itself the writer stays open after an error, and ffmpeg would write on after the file is gone.
            with closing(imageio.get_writer(temporary, **options)) as writer:
                yield add
        if not count:
            raise ValueError("A film needs at least one frame.")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_video(path: Path, frames: Iterable[Any], rate: int = 15) -> Path:
    """Write frames as a film, one at a time."""
    with filming(path, rate) as add:
        for frame in frames:
            add(frame)
    return path
