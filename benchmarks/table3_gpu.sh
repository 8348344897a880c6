#!/usr/bin/env bash
# Table 3 on one GPU: a few jobs at a time side by side (by NVIDIA's multi-process service where there is one), the
# longest first, each with a limit of running time per seed that the GPU's speed makes sensible.
#
#   benchmarks/table3_gpu.sh OUT [SCALE]      SCALE multiplies the limits (1: about 15 minutes on an H200)
#
# Small problems run their seeds together, so that their limit counts once; the same command goes on where
# it stopped. Afterwards: natmix reproduce table3 --only-table --from OUT
set -u
out=$1 scale=${2:-1} workers=${WORKERS:-5} natmix=${NATMIX:-natmix}
export XLA_PYTHON_CLIENT_PREALLOCATE=false
export CUDA_MPS_PIPE_DIRECTORY=${CUDA_MPS_PIPE_DIRECTORY:-/tmp/natmix-mps} CUDA_MPS_LOG_DIRECTORY=${CUDA_MPS_LOG_DIRECTORY:-/tmp/natmix-mps}
mkdir -p "$out" "$CUDA_MPS_PIPE_DIRECTORY"
command -v nvidia-cuda-mps-control > /dev/null && nvidia-cuda-mps-control -d

job() { # candidate problem seconds-per-seed [options]
  local candidate=$1 problem=$2 seconds
  seconds=$(python3 -c "print(max(1, round($3 * $scale)))")
  shift 3
  $natmix reproduce table3 --candidates "$candidate" --problems "$problem" --seeds 0:5 --max-run-time "${seconds}s" \
    --out "$out" --write "$out/tables-$problem-$candidate" --quiet "$@" > "$out/$problem-$candidate.log" 2>&1
}
export -f job
export out scale natmix

xargs -P "$workers" -I{} bash -c 'job {}' << END
samtron talos 120 --apart
samtron stm300 400 --together
samtron breast_cancer 60 --apart
samtron breast_cancer_mb 200 --together
samtron planar_robot_4 45 --apart
samtron wine 40 --apart
samtron stm20 40 --apart
samtron german_credit_mb 90 --together
samtron german_credit 60 --together
samtron gmm100 60 --together
samtron gmm20 20 --together
END
