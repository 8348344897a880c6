"""Callbacks of `natmix.fit` that log to TensorBoard, Weights & Biases and MLflow."""

from natmix.recorders.base import AbstractFitLog
from natmix.recorders.to_mlflow import mlflow
from natmix.recorders.to_tensorboard import tensorboard
from natmix.recorders.to_wandb import wandb

__all__ = ["AbstractFitLog", "mlflow", "tensorboard", "wandb"]
