"""Compiled programs are kept on disk, so that the next command starts at once."""

MIN_SECONDS = 0.02
"""Programs that took less to compile are not worth a file."""


def use_compilation_cache() -> None:
    """Let JAX keep compiled programs in the cache directory, unless the user has chosen another place."""
    import jax

    from natmix.experiments.references import cache_directory

    chosen = getattr(jax.config, "jax_compilation_cache_dir", None)  # also by JAX_COMPILATION_CACHE_DIR
    if chosen is not None:
        return
    directory = cache_directory().parent / "compiled"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # a cache is a convenience: without one everything works, only later
    jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_SECONDS)
