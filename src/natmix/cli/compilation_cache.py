"""A cache of compiled programs on disk, so that the next command starts at once."""

MIN_SECONDS = 0.02
"""Programs that compile faster are not cached."""


def use_compilation_cache() -> None:
    """Let JAX cache compiled programs in natmix's cache directory, unless the user has chosen another."""
    import jax

    from natmix.experiments.references import cache_directory

    chosen = getattr(jax.config, "jax_compilation_cache_dir", None)  # also by JAX_COMPILATION_CACHE_DIR
    if chosen is not None:
        return
    directory = cache_directory().parent / "compiled"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # the cache is optional: without it everything works, only slower
    jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_SECONDS)
