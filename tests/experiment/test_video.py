"""Films can be played, show what they were given, and keep their length."""

import imageio.v3 as imageio
import numpy as np
import pytest

from hpml.experiment.video import enlarge, tile, write_video

COLOURS = np.array([[250, 10, 10], [10, 250, 10], [10, 10, 250], [250, 250, 10], [10, 250, 250]], np.uint8)


@pytest.mark.parametrize("ending", ["mp4", "gif"])
def test_a_film_has_the_frames_that_it_was_given(tmp_path, ending):
    frames = [np.broadcast_to(colour, (21, 43, 3)) for colour in COLOURS]
    path = write_video(tmp_path / "new" / f"film.{ending}", frames, rate=5)
    found = imageio.imread(path, index=None) if ending == "gif" else imageio.imread(path, plugin="FFMPEG")
    assert len(found) == len(frames)
    assert found.shape[1] % 2 == found.shape[2] % 2 == 0
    middle = found[:, found.shape[1] // 2, found.shape[2] // 2, :3].astype(int)
    assert np.abs(middle - COLOURS).max() < 40  # mp4 keeps colours approximately
    assert [path.name for path in path.parent.iterdir()] == [f"film.{ending}"]


@pytest.mark.parametrize("agents", [1, 2, 3, 7, 9])
def test_every_agent_has_its_place(agents):
    views = np.arange(1, agents + 1, dtype=np.uint8)[:, None, None, None] * np.ones((1, 8, 8, 3), np.uint8)
    picture = tile(views)
    values, counts = np.unique(picture[..., 0], return_counts=True)
    shown = dict(zip(values.tolist(), counts.tolist(), strict=True))
    assert all(shown[agent] == 64 for agent in range(1, agents + 1))


def test_enlarging_repeats_pixels():
    frame = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    np.testing.assert_array_equal(enlarge(frame)[::8, ::8], frame)


@pytest.mark.parametrize(("name", "frames", "words"), [("a.avi", 1, "ends in .mp4 or .gif"), ("a.gif", 0, "one frame")])
def test_what_is_no_film_is_one_sentence(tmp_path, name, frames, words):
    with pytest.raises(ValueError, match=words):
        write_video(tmp_path / name, [np.zeros((4, 4, 3))] * frames)
