#!/usr/bin/env bash
# The Python package with PyTorch, and Hugging Face's models fed by it. Needs a
# python3 with torch, torchvision, transformers 5 and Pillow.
set -euo pipefail
readonly bundle=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d /tmp/ballast-XXXXXX)
trap 'rm -rf "$scratch"' EXIT

# The bundle's libraries are only for its programs: Python keeps the machine's.
cat >"$scratch/ballast-server" <<SH
#!/usr/bin/env bash
LD_LIBRARY_PATH=$LD_LIBRARY_PATH exec "$bundle/bin/ballast-server" "\$@"
SH
chmod +x "$scratch/ballast-server"
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH#*:}
export PYTHONPATH=$scratch/site PYTHONDONTWRITEBYTECODE=1
export BALLAST_SERVER_PROGRAM=$scratch/ballast-server
python3 -m zipfile -e "$bundle"/python/ballast_loader-*.whl "$scratch/site"

python3 "$bundle/python/python_gpu_test.py"
python3 "$bundle/python/examples/check_huggingface.py" \
  --ballast-server "$scratch/ballast-server" \
  --tokenizer "$bundle/python/chat.tokenizer.json" --device cuda --steps 2
