"""The frames of films, from every kind of file."""

import sys

import numpy as np
import pytest
from PIL import Image

from attnviz.core.errors import InputError, UsageError
from attnviz.features.video.frames import open_film
from tests.features.video.tiny_videos import frames, saved
from tests.invoke import attnviz


def same(one, other) -> bool:
    return bool((np.asarray(one) == np.asarray(other)).all())


def test_a_folder_is_a_film_in_the_order_of_numbers(tmp_path):
    film = frames(12)
    for number, frame in enumerate(film):
        frame.save(tmp_path / f"f{number}.png")
    (tmp_path / "notes.txt").write_text("no frame")
    found = open_film([tmp_path])
    assert (len(found), found.times) == (12, ())
    chosen = found.choose(4)
    assert chosen.note == "4 of 12 frames are read, evenly: 0, 4, 7, 11"
    assert all(map(same, chosen.frames, [film[number] for number in (0, 4, 7, 11)]))
    assert open_film([tmp_path]).choose(64).note == ""


def test_few_frames_are_read_more_than_once_if_a_model_must_have_more(tmp_path):
    film = frames(2)
    found = open_film(film).choose(4, exactly=True)
    assert found.note == "the model reads 4 frames, and the film has 2: some twice: 0, 1"
    assert all(map(same, found.frames, [film[0], film[0], film[1], film[1]]))


@pytest.mark.parametrize("suffix", [".gif", ".webp", ".png"])
def test_an_animated_picture_has_the_times_of_its_frames(suffix, tmp_path):
    film, path = frames(5), tmp_path / f"film{suffix}"
    more = {"lossless": True} if suffix == ".webp" else {}
    film[0].save(path, save_all=True, append_images=film[1:], duration=200, **more)
    found = open_film([path])
    assert found.times == pytest.approx((0, 0.2, 0.4, 0.6, 0.8))
    chosen = found.choose(3)
    assert chosen.note == "3 of 5 frames are read, evenly, at 0.00, 0.40, 0.80 s"
    assert chosen.times == pytest.approx((0, 0.4, 0.8))
    if suffix != ".gif":
        assert same(chosen.frames[1], film[2])


def test_a_file_of_video_is_read_at_its_key_frames_and_between(tmp_path):
    av = pytest.importorskip("av")
    film, path = frames(30, 64, 48), tmp_path / "film.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.bit_rate, stream.gop_size = 4_000_000, 12
        for frame in film:
            container.mux(stream.encode(av.VideoFrame.from_image(frame)))
        container.mux(stream.encode())
    found = open_film([path])
    assert len(found) == 30
    assert found.times == pytest.approx([number / 10 for number in range(30)])
    for number, frame in zip((0, 7, 14, 22, 29), found.choose(5).frames, strict=True):
        errors = [
            np.abs(np.asarray(frame, float) - np.asarray(other, float)).mean() for other in film
        ]
        assert int(np.argmin(errors)) == number
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(InputError, match=r"film\.mp4' cannot be read as a video"):
        open_film([path])


def test_a_file_of_video_without_a_decoder_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "film.webm"
    path.write_bytes(b"\x1aE\xdf\xa3" + bytes(60))
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UsageError, match=r"needs PyAV: pip install 'attnviz\[video\]'"):
        open_film([path])


def test_what_is_no_film_is_refused(tmp_path):
    film = frames(2)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="is a folder without frames"):
        open_film([tmp_path / "empty"])
    film[0].save(tmp_path / "a.png")
    with pytest.raises(InputError, match="is a single picture: --video needs two frames"):
        open_film([tmp_path / "a.png"])
    other = [film[0], Image.new("RGB", (8, 8))]
    with pytest.raises(InputError, match="are of one size, and these have 8 × 8 and 48 × 40"):
        open_film(other).choose(2)
    with pytest.raises(InputError, match="does not exist"):
        open_film([tmp_path / "none.mp4"])


@pytest.mark.models
def test_a_film_is_a_strip_a_moving_picture_a_page_and_data(tmp_path, coarse):
    model = saved("vivit", tmp_path / "vivit")
    folder = tmp_path / "frames"
    folder.mkdir()
    for number, frame in enumerate(frames(6)):
        frame.save(folder / f"{number}.png")
    asked = ("image", folder, "--video", "--model", model)
    files = [tmp_path / name for name in ("strip.png", "film.gif", "heads.png", "page.html")]
    strip, moving, heads, page = files
    done = attnviz(
        *asked, "--picture", strip, "--picture", moving, "--grid", heads, "--html", page,
        "-f", "json",
    )  # fmt: skip
    assert done.status == 0, done.err
    assert "4 of 6 frames are read, evenly: 0, 2, 3, 5" in done.err
    maps = done.json()["maps"]
    assert [one["stream"] for one in maps] == ["video-to-frames 0-1", "video-to-frames 2-3"]
    with Image.open(moving) as film:
        assert film.n_frames == 4
    assert page.read_text().count("data:image/jpeg") == 2
    again = strip.read_bytes()
    assert attnviz(*asked, "--picture", strip, "-f", "none", "-q").status == 0
    assert strip.read_bytes() == again
    assert "the film has 2 steps" in attnviz(*asked, "--patch", "2,0,0").mistake
    done = attnviz("image", folder, "--video", "--model", model, "--token", "1")
    assert done.mistake == "--token chooses a token of --text: give that too"
    done = attnviz("image", folder / "0.png", "--model", model)
    assert "reads films of 4 frames" in done.mistake
