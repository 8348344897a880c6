"""Search by Optuna, and its storage, on which its dashboard opens: one of Optuna's studies for each cell.

Only clients use the storage; workers do not. A batch of settings is chosen with a seed for each, from the
results of the earlier batches alone: interrupted or not, with one worker or a hundred, a study chooses the
same settings, as long as its trials come to the same results.
"""

import contextlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from natmix.experiments.studies.definition import CellKey, SearchRules, Study
from natmix.experiments.studies.domains import Choice, Domain, FloatRange
from natmix.experiments.studies.progress import ResultStorage
from natmix.experiments.studies.settings_source import (
    AbstractSettings,
    SettingResult,
    axes,
    full_setting,
    seed_of,
)
from natmix.experiments.studies.storage_place import storage_place
from natmix.experiments.studies.study_folder import StudyFolder
from natmix.experiments.studies.trial_runner import Setting
from natmix.files.lock import lock
from natmix.text.extras import needs

if TYPE_CHECKING:
    import optuna


class OptunaStorage(ResultStorage):
    """Optuna's storage of a study."""

    def __init__(self, folder: StudyFolder, study: Study) -> None:
        what = f"The storage {study.storage!r} (the samplers random and grid do with storage 'none')"
        with needs("Optuna", "study", what):
            import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study, self._storage = study, _open_storage(folder, study.storage)
        self._cells: dict[CellKey, optuna.Study] = {}

    def of(self, cell: CellKey) -> "optuna.Study":
        """Optuna's study of a cell."""
        import optuna

        if cell not in self._cells:
            direction: Literal["maximize", "minimize"]
            direction = "maximize" if self._study.objective.maximize else "minimize"
            self._cells[cell] = optuna.create_study(
                storage=self._storage,
                study_name=f"{self._study.name}/{cell}",
                direction=direction,
                load_if_exists=True,
            )
        return self._cells[cell]

    def forget_unplanned(self, cell: CellKey, first: int) -> None:
        import optuna

        running = (optuna.trial.TrialState.RUNNING,)
        for trial in self.of(cell).get_trials(deepcopy=False, states=running):
            if trial.user_attrs.get("setting", first) >= first:
                self.of(cell).tell(trial.number, state=optuna.trial.TrialState.FAIL)

    def planned(self, cell: CellKey, position: int, settings: dict[str, Any]) -> int:
        import optuna

        space, values = self._study.spaces[cell], {}
        for name, _ in axes(space):
            values[name] = settings.get(name) if name in space.free else _chosen(space, name, settings)
        template = optuna.trial.create_trial(
            state=optuna.trial.TrialState.RUNNING,
            params=values,
            distributions=distributions(self._study, cell),
            user_attrs={"setting": position},
        )
        study = self.of(cell)
        trial = self._storage.create_new_trial(study._study_id, template_trial=template)
        return int(self._storage.get_trial_number_from_id(trial))

    def finished(self, cell: CellKey, stored: int, result: SettingResult) -> None:
        import optuna

        study = self.of(cell)
        trial = self._storage.get_trial_id_from_study_id_trial_number(study._study_id, stored)
        if self._storage.get_trial(trial).state.is_finished():
            return
        for step, value in enumerate(_mean_curve(result), 1):
            self._storage.set_trial_intermediate_value(trial, step, value)
        reasons = sorted({o.reason for o in result.outcomes if o.state == "failed"})
        if reasons:
            self._storage.set_trial_user_attr(trial, "reason", "; ".join(reasons))
        states = optuna.trial.TrialState
        state = {"complete": states.COMPLETE, "pruned": states.PRUNED}.get(result.state, states.FAIL)
        values = [result.value] if state == states.COMPLETE and result.value is not None else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            study.tell(stored, values if values else None, state=state, skip_if_finished=True)


class OptunaSettings(AbstractSettings):
    """Settings that one of Optuna's samplers chooses from the results."""

    def __init__(self, study: Study, storage: OptunaStorage) -> None:
        self._study, self._storage = study, storage
        if study.search.sampler == "gp":
            with needs("PyTorch", "study-gp", "The sampler gp"):
                import torch  # noqa: F401

    @property
    def learns(self) -> bool:
        return True

    def batch(
        self, cell: CellKey, positions: range, results: Sequence[SettingResult]
    ) -> tuple[list[dict[str, Setting]], list[int]]:
        study, space = self._storage.of(cell), self._study.spaces[cell]
        settings, stored = [], []
        if not axes(space):
            return [full_setting(space, {}) for _ in positions], []
        for position in positions:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                study.sampler = _sampler(self._study.search, seed_of(self._study.search, cell, position))
                trial = study.ask(distributions(self._study, cell))
                trial.set_user_attr("setting", position)
            settings.append(full_setting(space, trial.params))
            stored.append(trial.number)
        return settings, stored


def distributions(study: Study, cell: CellKey) -> dict[str, Any]:
    """Optuna's distributions of what is searched in a cell."""
    return {name: _distribution(domain) for name, domain in axes(study.spaces[cell])}


def _distribution(domain: Domain) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(domain, Choice):
        return CategoricalDistribution(domain.values)
    if isinstance(domain, FloatRange):
        return FloatDistribution(domain.low, domain.high, log=domain.log)
    return IntDistribution(int(domain.low), int(domain.high), log=domain.log)


def _sampler(rules: SearchRules, seed: int) -> Any:
    import optuna

    if rules.sampler == "gp":
        return optuna.samplers.GPSampler(seed=seed, n_startup_trials=rules.startup)
    # Trials without a result count for nothing, so that those of a batch that was never planned do no harm.
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=rules.startup, constant_liar=False)


def _chosen(space: Any, name: str, settings: dict[str, Any]) -> int:
    """Which of a group of joint choices the settings have."""
    group = space.together[int(name.removeprefix("together") or 0)]
    return next(i for i, choice in enumerate(group) if choice.items() <= settings.items())


def _mean_curve(result: SettingResult) -> list[float]:
    """The mean of the trials' curves, as far as all of them came."""
    curves = [outcome.curve for outcome in result.outcomes]
    out = []
    for values in zip(*curves, strict=False):
        if any(value is None for value in values):
            break
        out.append(float(np.mean(values)))
    return out


def _open_storage(folder: StudyFolder, storage: str) -> Any:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    folder.path.mkdir(parents=True, exist_ok=True)
    url = storage_place(folder, storage)
    if storage == "journal":
        with folder.planning():
            _mend(Path(url))
        held: Any = _JournalLock(Path(f"{url}.lock"))  # it has the two methods of Optuna's class
        return JournalStorage(JournalFileBackend(url, lock_obj=held))
    try:
        return optuna.storages.RDBStorage(url)
    except Exception as error:
        raise ValueError(f"The storage {storage!r} cannot be opened: {str(error).splitlines()[0]}") from error


class _JournalLock:
    """A lock of the journal that ends with the process that holds it, unlike Optuna's own."""

    def __init__(self, path: Path) -> None:
        self._path, self._held = path, contextlib.ExitStack()

    def acquire(self) -> bool:
        self._held.enter_context(lock(self._path, wait=True))
        return True

    def release(self) -> None:
        self._held.close()


def _mend(journal: Path) -> None:
    """Cut off a last line that was not finished, because its writer was killed."""
    if not journal.is_file():
        return
    content = journal.read_bytes()
    if content and not content.endswith(b"\n"):
        with journal.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)
