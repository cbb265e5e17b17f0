# Functions for scripts that run the programs of gpu_bundle/; sourced.

# unpack_bundle BUNDLE: unpacks the programs, once.
unpack_bundle() {
  local packed=$1/programs.tar.xz
  [[ -f $packed ]] || return 0
  python3 -m tarfile -e "$packed" "$1" # the machine may lack xz
  rm "$packed"
}

# library_path BUNDLE: the bundle's libraries first, then the machine's path, then
# the usual places of the driver's, CUDA's and NCCL's libraries: a toolkit,
# PyTorch's packages.
library_path() {
  local path dir
  path=$(cd "$1" && pwd)/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  for dir in "${CUDA_PATH:-/usr/local/cuda}/lib64" /usr/local/nvidia/lib64 \
    $(python3 -c '
import glob, site, sys
for root in dict.fromkeys(sys.path + site.getsitepackages()):
    print(*glob.glob(root + "/nvidia/*/lib"), sep="\n")' 2>/dev/null); do
    [[ -d $dir ]] && path+=:$dir
  done
  echo "$path"
}
