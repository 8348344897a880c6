"""Programs, data and reference draws of a clone of stan-dev/posteriordb."""

import dataclasses
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

DEFAULT = (
    "kidiq-kidscore_interaction",
    "garch-garch11",
    "gp_pois_regr-gp_regr",
    "eight_schools-eight_schools_noncentered",
    "eight_schools-eight_schools_centered",
    "low_dim_gauss_mix-low_dim_gauss_mix",
    "arK-arK",
    "earnings-logearn_interaction",
    "mesquite-logmesquite",
    "gp_pois_regr-gp_pois_regr",
    "hmm_example-hmm_example",
    "bball_drive_event_0-hmm_drive_0",
    "hudson_lynx_hare-lotka_volterra",
    "one_comp_mm_elim_abs-one_comp_mm_elim_abs",
    "diamonds-diamonds",
    "nes1980-nes",
    "sblrc-blr",
    "kilpisjarvi_mod-kilpisjarvi",
)

LOG_SCALE = ("one_comp_mm_elim_abs-one_comp_mm_elim_abs",)
"""Posteriors of positive variables with tails so heavy that moments are compared of their logarithms."""

_ENTRY = re.compile(r"(?P<name>[^\[]+)(\[(?P<index>[\d,]+)\])?")


@dataclasses.dataclass(frozen=True)
class Posterior:
    """One posterior of the database.

    Attributes:
        name: its name.
        program: the path of its Stan program.
        data: JSON.
        reference: the name of its reference draws.
        root: of the database.
    """

    name: str
    program: Path
    data: str
    reference: str
    root: Path

    @property
    def on_log_scale(self) -> bool:
        """Whether logarithms are compared."""
        return self.name in LOG_SCALE

    def reference_draws(self) -> tuple[tuple[str, ...], Float[np.ndarray, "N P"]]:
        """Names such as ``theta[1]``, and the draws of all chains."""
        chains = json.loads(_text(self.root / "reference_posteriors/draws/draws", self.reference))
        names = tuple(chains[0])
        return names, np.concatenate([np.array([chain[name] for name in names], float).T for chain in chains])


def root(path: Path) -> Path:
    """The folder ``posterior_database`` of a clone, or that folder itself; it exits if there is none."""
    for folder in (path / "posterior_database", path):
        if (folder / "posteriors").is_dir() and (folder / "models/stan").is_dir():
            return folder
    raise SystemExit(
        f"There is no posteriordb in {str(path)!r}: clone https://github.com/stan-dev/posteriordb and give "
        "its folder, make bench-posteriordb DATABASE=path."
    )


def with_reference(root: Path) -> list[str]:
    """Names of all posteriors with reference draws, in alphabetical order."""
    files = sorted((root / "posteriors").glob("*.json"), key=lambda file: file.stem)
    return [f.stem for f in files if json.loads(f.read_text("utf-8")).get("reference_posterior_name")]


def development(root: Path) -> list[str]:
    """Settings may be chosen on these: every second one of the table's, and of all others."""
    names = with_reference(root)
    table = [name for name in names if name in DEFAULT]
    others = [name for name in names if name not in DEFAULT]
    return sorted([*table[::2], *others[::2]])


def posterior(root: Path, name: str) -> Posterior:
    """One posterior by name."""
    path = root / "posteriors" / f"{name}.json"
    if not path.exists():
        raise SystemExit(f"posteriordb has no posterior {name!r}.")
    entry = json.loads(path.read_text("utf-8"))
    reference = entry.get("reference_posterior_name")
    if not reference:
        raise SystemExit(f"The posterior {name!r} has no reference draws.")
    program = root / "models/stan" / f"{entry['model_name']}.stan"
    return Posterior(name, program, _text(root / "data/data", entry["data_name"]), reference, root)


def _text(folder: Path, name: str) -> str:
    packed = folder / f"{name}.json.zip"
    if packed.exists():
        with zipfile.ZipFile(packed) as archive:
            return archive.read(archive.namelist()[0]).decode("utf-8")
    plain = folder / f"{name}.json"
    if plain.exists():
        return plain.read_text("utf-8")
    raise FileNotFoundError(f"The clone of posteriordb lacks {packed.relative_to(folder.parents[1])}.")


def columns(draws: Mapping[str, Any], names: tuple[str, ...]) -> Float[np.ndarray, "N P"]:
    """These entries of draws by variable, samples first."""
    found = []
    for text in names:
        entry = _ENTRY.fullmatch(text)
        assert entry is not None, text
        at: tuple[Any, ...] = tuple(int(i) - 1 for i in entry["index"].split(",")) if entry["index"] else ()
        found.append(np.asarray(draws[entry["name"]], float)[(slice(None), *at)])
    return np.stack(found, axis=1)
