"""Where Optuna's storage of a study is, for its dashboard."""

from natmix.experiments.studies.study_folder import StudyFolder

JOURNAL, DATABASE = "optuna.log", "optuna.db"


def storage_place(folder: StudyFolder, storage: str) -> str:
    """What to give to ``optuna-dashboard``."""
    if storage == "journal":
        return str(folder.path / JOURNAL)
    return f"sqlite:///{folder.path / DATABASE}" if storage == "sqlite" else storage
