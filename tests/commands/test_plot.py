"""mepg plot."""

from mepg.cli import main


def test_plot_draws_any_runs_in_one_picture(finished, capsys, tmp_path):
    from PIL import Image

    for kind in ("png", "svg"):
        assert main(["plot", str(finished), "--out", f"deep/curves.{kind}"]) == 0
    assert "deep/curves.svg: 1 curve from 1 run" in capsys.readouterr().out
    with Image.open(tmp_path / "deep" / "curves.png") as picture:
        assert picture.size[0] > 300
    assert (tmp_path / "deep" / "curves.svg").read_text().startswith("<?xml")


def test_plot_says_why_there_is_nothing_to_draw(capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    for argv, says in (
        (["empty"], "there is nothing to plot: empty holds no run"),
        (["nowhere"], "nowhere is not a folder"),
        (["empty", "--out", "curves.bmp"], "--out must be a .png or .svg file, not 'curves.bmp'"),
    ):
        assert main(["plot", *argv]) == 2
        assert says in capsys.readouterr().err
