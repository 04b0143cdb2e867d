#!/usr/bin/env bash
# Lists and sums up a generated checkpoint of 1024 ranks and 100,000 tensors.
#
#   scale_test.sh CKPT_INSPECT PYTHON STAGE
set -euo pipefail
inspect=$1
python=$2
stage=$3
here=$(cd "$(dirname "$0")" && pwd)

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" "$here/../../scripts/make_large_checkpoint.py" "$folder/run" \
  --stage "$stage"

ulimit -n 256
time "$inspect" list "$folder/run" --json > "$folder/list.json"
time "$inspect" summary "$folder/run" --json > "$folder/summary.json"
"$python" "$here/check_output.py" "$stage" "$folder/list.json" \
  "$folder/summary.json"
