"""The engine: drives one run, or a batch of runs, for `natmix.fit` and for ``natmix run``.

`FitLoop` advances runs in chunks of iterations until a limit, a recorder or an interrupt ends them.
`ChunkRunner` advances one state, `BatchRunner` several by `jax.vmap`; both grow the capacity for components
and compile in the background (`AbstractRunner`). What observes a run is a `Recorder`.
"""
