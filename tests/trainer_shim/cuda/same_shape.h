#ifndef BALLAST_TESTS_TRAINER_SHIM_CUDA_SAME_SHAPE_H_
#define BALLAST_TESTS_TRAINER_SHIM_CUDA_SAME_SHAPE_H_

#include <type_traits>

namespace ballast {

// Whether a function of a library's header and our declaration of it have the
// same number of arguments, and arguments of the same sizes.
template <typename Status, typename... A, typename... B>
constexpr bool SameShape(Status (*)(A...), int (*)(B...)) {
  if constexpr (sizeof...(A) != sizeof...(B)) {
    return false;
  } else {
    return ((sizeof(A) == sizeof(B) &&
             std::is_pointer_v<A> == std::is_pointer_v<B>)&&...);
  }
}

}  // namespace ballast

#endif  // BALLAST_TESTS_TRAINER_SHIM_CUDA_SAME_SHAPE_H_
