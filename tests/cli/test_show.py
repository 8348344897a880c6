"""``natmix list``, ``show`` and ``compare``, as a user types them."""

import shutil

import pytest
from run_command import assert_one_sentence, natmix
from run_files import change_final, renumber

from natmix import Mixture
from natmix.cli import listing
from natmix.cli.run_table import mean_and_error, number
from natmix.experiments import problems, runs
from natmix.text.extras import install

pytestmark = pytest.mark.usefixtures("quick_compilation")


def test_list_names_problems_presets_and_runs(finished, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    outcome = natmix("list", "--runs", finished[1].parent)
    assert outcome.exit_code == 0, outcome.output
    for name in problems.names():
        assert any(line.split()[:2] == [name, _dimension(name)] for line in outcome.stdout.splitlines())
    assert "-77.579 ± 0.017" in outcome.stdout
    assert "± is one standard error" in outcome.stdout
    assert "all of these problems but planar_robot_1, stm300 (ZAMTRUX)." in outcome.stdout
    assert "SEPYFUX" in outcome.stdout
    row = next(line for line in outcome.stdout.splitlines() if "gmm2 " in line)
    assert "2 of 2" in row


def _dimension(name):
    return str(problems.catalogue()[name].dim)


def test_list_without_data_and_runs(tmp_path, monkeypatch):
    def load(name):
        raise ImportError(f"The file is missing: {install('problems')}, or put it somewhere.")

    monkeypatch.setattr(problems, "load", load)
    assert listing._loaded("wine") == install("problems")
    monkeypatch.setenv("COLUMNS", "160")
    outcome = natmix("list", "--runs", tmp_path)
    assert outcome.exit_code == 0
    assert install("problems") in outcome.stdout
    assert outcome.stdout.rstrip().endswith("none")


def test_list_fits_80_columns_whatever_is_wrong_with_the_data(tmp_path, monkeypatch):
    original = problems.load

    def load(name):
        if name == "wine":
            raise ValueError(f"{'x' * 100} is not the file. Replace or remove it.")
        return original(name)

    monkeypatch.setattr(problems, "load", load)
    monkeypatch.setenv("COLUMNS", "80")
    lines = natmix("list", "--runs", tmp_path).stdout.splitlines()
    remark = [line for line in lines if line.startswith("wine: xxx")]
    assert len(remark) == 1
    assert remark[0].endswith("Replace or remove it.")
    assert all(len(line) <= 80 for line in lines if line not in remark)
    (row,) = (line for line in lines if line.startswith("wine ") and "177" in line)
    assert row.endswith("bad file")


def test_list_survives_a_damaged_run(tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.json").write_text("{")
    outcome = natmix("list", "--runs", tmp_path)
    assert outcome.exit_code == 0
    assert "cannot be" in outcome.stdout


def test_show_tells_what_a_run_is_and_how_it_ended(finished, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    outcome = natmix("show", finished[1])
    assert outcome.exit_code == 0, outcome.output
    for words in ("gmm2", "SAMTRON, preset fit", "desired_samples = 20", "max_iterations = 20", "float32"):
        assert words in outcome.stdout
    words = outcome.stdout.split()
    assert "detected_modes" in words
    assert "mean" in words


@pytest.mark.parametrize(("ess", "flagged"), [(0.008, True), (0.02, False), (float("nan"), True)])
def test_show_flags_a_log_evidence_from_few_samples(ess, flagged, copy):
    final = copy / "seed-1" / "final.json"
    change_final(final, log_evidence=3.0, reverse_ess=ess)
    change_final(copy / "seed-0" / "final.json", log_evidence=3.0, reverse_ess=0.5)
    shown = natmix("show", copy).stdout
    assert "± is one standard error" in shown
    assert ("log_evidence of seed 1 depends on few samples (reverse_ess below 1%)" in shown) == flagged


def test_show_an_unfinished_run(copy, monkeypatch):
    (copy / "seed-1" / "final.json").unlink()
    outcome = natmix("show", copy)
    assert outcome.exit_code == 0
    assert "unfinished" in outcome.stdout


def test_no_number_is_cut_short(copy, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    for seed in range(2, 12):
        shutil.copytree(copy / "seed-1", copy / f"seed-{seed}")
        renumber(copy, seed)
    shown = natmix("show", copy).stdout
    compared = natmix("compare", copy, "--target", "1e6", "--out", tmp_path / "x.png").stdout
    assert "…" not in shown + compared
    assert {"detected_modes", "lowest", "highest"} <= set(shown.split())
    assert str(copy) in compared


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b'{"format": 1}'),
        ("config.json", b"\x80"),
        ("seed-0/final.json", b"{}"),
        ("seed-0/metrics.jsonl", b"nonsense"),
        ("seed-0/metrics.jsonl", b'{"seconds": 1}\n{}'),
    ],
)
def test_a_damaged_file_is_named(name, content, copy, tmp_path):
    (copy / name).write_bytes(content)
    outcome = natmix("compare", copy, "--out", tmp_path / "x.png", "--target", 1)
    assert_one_sentence(outcome, f"{copy / name} is damaged")


@pytest.mark.parametrize("name", ["trace.safetensors", "weights.safetensors"])
@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 cut short"])
def test_damaged_arrays_are_named(name, content, copy):
    (copy / "seed-0" / name).write_bytes(content)
    seed = runs.load_run(copy).seeds[0]
    with pytest.raises(ValueError, match=f"{name} is damaged"):
        getattr(seed, name.removesuffix(".safetensors"))


@pytest.mark.parametrize("command", ["show", "compare"])
def test_what_is_no_run_gets_one_sentence(command, tmp_path):
    assert_one_sentence(natmix(command, tmp_path / "nothing"), "There is no run directory")
    assert_one_sentence(natmix(command, tmp_path), "is no run directory")


def test_compare_prints_a_table_and_saves_a_picture(finished, copy, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    picture = tmp_path / "new" / "curves.png"
    outcome = natmix("compare", finished[1], copy, "--out", picture, "--target", "1e6")
    assert outcome.exit_code == 0, outcome.output
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")
    rows = [line for line in outcome.stdout.splitlines() if "SAMTRON" in line]
    assert len(rows) == 2
    assert all("2 of 2" in row for row in rows)
    assert "to 1e+06" in outcome.stdout
    never = natmix("compare", copy, "--out", picture, "--target", "-1e6")
    assert "never" in never.stdout


def test_compare_needs_a_picture_it_can_write(finished, tmp_path):
    outcome = natmix("compare", finished[1], "--out", tmp_path / "curves.doc")
    assert_one_sentence(outcome, "must be a .png, .pdf, .svg or .jpg file")


def test_compare_without_matplotlib_keeps_the_table(finished, monkeypatch, tmp_path):
    monkeypatch.setattr("natmix.cli.compare.importlib.util.find_spec", lambda name: None)
    outcome = natmix("compare", finished[1], "--out", tmp_path / "x.png")
    assert outcome.exit_code == 0
    assert install("plot") in outcome.stdout
    assert not (tmp_path / "x.png").exists()


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (None, None, ""),
        (7, None, "7"),
        (1234, None, "1234"),
        (38300, None, "38.3k"),
        (3.37e6, None, "3.37M"),
        (0.5, None, "0.5"),
        (78.0012, 0.0123, "78.001 ± 0.012"),
        (1423.12, 3.4, "1423.1 ± 3.4"),
        (1.0, 0.0, "1 ± 0"),
        (-4e-9, 2e-9, "-4e-09 ± 2e-09"),
        (585.1, 2e-9, "585.100000 ± 2e-09"),
        (float("inf"), 0.1, "inf"),
        (float("nan"), None, "nan"),
    ],
)
def test_numbers(value, error, text):
    assert number(value, error) == text


def test_mean_with_its_standard_error():
    assert mean_and_error([1.0, 3.0, None]) == "2.0 ± 1.0"
    assert mean_and_error([4.0]) == "4.00"
    assert mean_and_error([1423.12]) == "1423.12"
    assert mean_and_error([0.00153]) == "0.00153"
    assert mean_and_error([]) == ""


def test_the_mixture_of_a_run_loads(finished):
    assert Mixture.load(finished[1] / "seed-0" / "mixture.safetensors").dim == 2
