#ifndef BALLAST_TRAINER_SHIM_HOST_DEVICE_H_
#define BALLAST_TRAINER_SHIM_HOST_DEVICE_H_

// Functions that host code and kernels share.
#ifdef __CUDACC__
#define BALLAST_HOST_DEVICE __host__ __device__
#else
#define BALLAST_HOST_DEVICE
#endif

#endif  // BALLAST_TRAINER_SHIM_HOST_DEVICE_H_
