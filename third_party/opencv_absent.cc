// What Debian's static OpenCV refers to besides itself and zlib: TBB, LAPACK,
// BLAS and OpenGL. Drawing uses none of them, so a program that draws is linked
// with these instead of with the libraries, of which TBB, OpenGL and X11 come
// shared alone and a server would load them each time it starts.
//
// OpenGL is absent as on a machine without it: no context, no function. OpenCV
// calls TBB for loops on several threads, which server/command/draw switches
// off, and LAPACK and BLAS for decompositions and products of matrices. A
// program that still gets there ends with the name of the function.
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace {

[[noreturn]] void Absent(const char* function) {
  std::fprintf(stderr,
               "OpenCV called %s, which this program is built without: "
               "third_party/opencv_absent.cc\n",
               function);
  std::abort();
}

}  // namespace

extern "C" {

void* glXGetCurrentContext() { return nullptr; }
void* glXGetCurrentDisplay() { return nullptr; }
void* glXGetProcAddressARB(const unsigned char*) { return nullptr; }

#define BALLAST_ABSENT(name) \
  void name() { Absent(#name); }
BALLAST_ABSENT(cblas_cgemm)
BALLAST_ABSENT(cblas_dgemm)
BALLAST_ABSENT(cblas_sgemm)
BALLAST_ABSENT(cblas_zgemm)
BALLAST_ABSENT(dgels_)
BALLAST_ABSENT(dgeqrf_)
BALLAST_ABSENT(dgesdd_)
BALLAST_ABSENT(dgesv_)
BALLAST_ABSENT(dgetrf_)
BALLAST_ABSENT(dposv_)
BALLAST_ABSENT(dpotrf_)
BALLAST_ABSENT(sgels_)
BALLAST_ABSENT(sgeqrf_)
BALLAST_ABSENT(sgesdd_)
BALLAST_ABSENT(sgesv_)
BALLAST_ABSENT(sgetrf_)
BALLAST_ABSENT(sposv_)
BALLAST_ABSENT(spotrf_)
#undef BALLAST_ABSENT

}  // extern "C"

// The functions of libtbb.so.12 that its headers call.
namespace tbb::detail {
namespace d1 {
class delegate_base;
class small_object_pool;
class task;
class task_arena_base;
class task_group_context;
class wait_context;
struct execution_data;
}  // namespace d1
namespace r1 {

void* allocate(d1::small_object_pool*&, std::size_t) { Absent("tbb allocate"); }
void* allocate(d1::small_object_pool*&, std::size_t,
               const d1::execution_data&) {
  Absent("tbb allocate");
}
void cache_aligned_deallocate(void*) { Absent("tbb cache_aligned_deallocate"); }
void deallocate(d1::small_object_pool&, void*, std::size_t,
                const d1::execution_data&) {
  Absent("tbb deallocate");
}
void destroy(d1::task_group_context&) { Absent("tbb destroy"); }
void execute(d1::task_arena_base&, d1::delegate_base&) {
  Absent("tbb execute");
}
void execute_and_wait(d1::task&, d1::task_group_context&, d1::wait_context&,
                      d1::task_group_context&) {
  Absent("tbb execute_and_wait");
}
unsigned short execution_slot(const d1::execution_data*) {
  Absent("tbb execution_slot");
}
void initialize(d1::task_arena_base&) { Absent("tbb initialize"); }
void initialize(d1::task_group_context&) { Absent("tbb initialize"); }
bool is_group_execution_cancelled(d1::task_group_context&) {
  Absent("tbb is_group_execution_cancelled");
}
int max_concurrency(const d1::task_arena_base*) {
  Absent("tbb max_concurrency");
}
void notify_waiters(std::size_t) { Absent("tbb notify_waiters"); }
void reset(d1::task_group_context&) { Absent("tbb reset"); }
void spawn(d1::task&, d1::task_group_context&) { Absent("tbb spawn"); }
void terminate(d1::task_arena_base&) { Absent("tbb terminate"); }
void wait(d1::wait_context&, d1::task_group_context&) { Absent("tbb wait"); }

}  // namespace r1
}  // namespace tbb::detail
