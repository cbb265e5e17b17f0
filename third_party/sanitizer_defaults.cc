// Suppressions for libraries that are built without a sanitizer. Empty in any
// other build.

#if defined(BALLAST_TSAN)
// ThreadSanitizer cannot see the locks inside Debian's gRPC, Abseil and
// OpenSSL, and reports races. Ballast's own state never relies on their locks
// (see common/mutex.h), so frames inside these libraries are ignored.
extern "C" const char* __tsan_default_suppressions() {
  return "race:libgrpc.so\n"
         "race:libgrpc++.so\n"
         "race:libgpr.so\n"
         "race:libprotobuf.so\n"
         "race:libabsl_\n"
         "race:libcares.so\n"
         "race:libssl.so\n"
         "race:libcrypto.so\n";
}
// A server that ends in time leaves threads that a file system blocks, which is
// a thread leak to the sanitizer.
extern "C" const char* __tsan_default_options() {
  return "ignore_noninstrumented_modules=1:halt_on_error=1:"
         "report_thread_leaks=0";
}
#endif

#if defined(BALLAST_ASAN)
// Arrow's own OpenSSL keeps the last errors of each thread.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libarrow_s3.so\n";
}
#endif
