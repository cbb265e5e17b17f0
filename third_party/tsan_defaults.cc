// Debian's gRPC, Abseil and OpenSSL are not built with ThreadSanitizer, so
// what synchronises inside them is invisible to it and shows as races.
// Ballast's own state never relies on their locks (see common/mutex.h), so
// frames inside these libraries are ignored. Empty outside --config=tsan.
#if defined(BALLAST_TSAN)
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
extern "C" const char* __tsan_default_options() {
  return "ignore_noninstrumented_modules=1:halt_on_error=1";
}
#endif
