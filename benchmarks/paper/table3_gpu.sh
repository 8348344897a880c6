#!/usr/bin/env bash
# Table 3 on one GPU: lanes of jobs side by side (by NVIDIA's multi-process service where there is one), each with a
# limit of running time per seed. SAMTRON's four lanes come first; the other algorithms' three lanes may use a fifth of the GPU each.
#
#   benchmarks/paper/table3_gpu.sh OUT [SCALE]      SCALE multiplies the limits (1: about 20 minutes on an H200)
#
# Seeds that run together share one limit. The same command goes on where it stopped. Afterwards:
#   natmix reproduce table3 --only-table --unfinished --from OUT --write FOLDER
set -u
out=$1 scale=${2:-1} natmix=${NATMIX:-natmix}
export XLA_PYTHON_CLIENT_PREALLOCATE=false
mps=${TMPDIR:-/tmp}/natmix-mps
export CUDA_MPS_PIPE_DIRECTORY=${CUDA_MPS_PIPE_DIRECTORY:-$mps} CUDA_MPS_LOG_DIRECTORY=${CUDA_MPS_LOG_DIRECTORY:-$mps}
mkdir -p "$out" "$CUDA_MPS_PIPE_DIRECTORY"
command -v nvidia-cuda-mps-control > /dev/null && nvidia-cuda-mps-control -d

job() { # candidate problem seconds-per-seed seeds [options]
  local candidate=$1 problem=$2 seconds seeds=$4
  seconds=$(python3 -c "print(max(1, round($3 * $scale)))")
  shift 4
  $natmix reproduce table3 --candidates "$candidate" --problems "$problem" --seeds "$seeds" --max-run-time "${seconds}s" \
    --out "$out" --write "$out/tables-$problem-$candidate" --quiet "$@" > "$out/$problem-$candidate.log" 2>&1 < /dev/null
}
lane() { while read -r line; do [ -n "$line" ] && job $line; done; }

lane << END &
samtron stm300 1000 0:5 --together
END
lane << END &
samtron talos 120 0:5 --apart
END
lane << END &
samtron breast_cancer 65 0:5 --apart
samtron planar_robot_4 65 0:5 --apart
samtron wine 45 0:5 --apart
END
lane << END &
samtron gmm20 20 0:5 --together
samtron stm20 45 0:5 --apart
samtron breast_cancer_mb 200 0:5 --together
samtron gmm100 80 0:5 --together
samtron german_credit 50 0:5 --together
samtron german_credit_mb 80 0:5 --together
END
export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=20
lane << END &
samyron gmm20 20 0:5 --together
samyron stm20 50 0:5 --together
samyron gmm100 40 0:5 --together
samyron stm300 100 0:5 --together
samyron german_credit 40 0:5 --together
samyron german_credit_mb 40 0:5 --together
samyron breast_cancer 60 0:5 --together
samyron breast_cancer_mb 60 0:5 --together
samyron talos 60 0:3 --apart
samyron wine 40 0:3 --apart
samyron planar_robot_4 60 0:3 --apart
END
lane << END &
zamtrux gmm20 20 0:5 --together
zamtrux stm20 50 0:5 --together
zamtrux german_credit 40 0:5 --together
zamtrux breast_cancer 60 0:5 --together
zamtrux german_credit_mb 40 0:5 --together
zamtrux breast_cancer_mb 60 0:5 --together
zamtrux talos 80 0:3 --apart
zamtrux planar_robot_4 80 0:3 --apart
zamtrux gmm100 50 0:3 --apart
zamtrux wine 40 0:3 --apart
END
lane << END &
sepyfux gmm20 40 0:5 --together
sepyfux stm20 40 0:5 --together
sepyfux gmm100 40 0:5 --together
sepyfux stm300 80 0:5 --together
sepyfux german_credit 40 0:5 --together
sepyfux german_credit_mb 50 0:5 --together
sepyfux breast_cancer 50 0:5 --together
sepyfux breast_cancer_mb 50 0:5 --together
sepyfux planar_robot_4 50 0:5 --together
sepyfux talos 60 0:3 --apart
sepyfux wine 40 0:3 --apart
END
wait
