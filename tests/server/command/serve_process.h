#ifndef BALLAST_TESTS_SERVER_COMMAND_SERVE_PROCESS_H_
#define BALLAST_TESTS_SERVER_COMMAND_SERVE_PROCESS_H_

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace ballast {

// The running program serve_main. Its standard output and error are pipes.
class ServeProcess {
 public:
  explicit ServeProcess(std::vector<std::string> arguments);
  ~ServeProcess();

  ServeProcess(const ServeProcess&) = delete;
  ServeProcess& operator=(const ServeProcess&) = delete;

  // The next line of standard output, without its line break.
  std::string ReadLine();
  // Standard error up to its end.
  std::string ReadErrors();
  // The next line of the log that contains `text`; empty at the end of the log.
  std::string AwaitLog(const std::string& text);
  void Signal(int signal);
  // Sends the signal to each child of the process.
  void SignalChildren(int signal);
  // The exit status; -1 if a signal killed it.
  int Wait();

 private:
  pid_t pid_ = 0;
  FILE* out_ = nullptr;
  FILE* err_ = nullptr;
};

// Writes a source of texts and a configuration, with `more` appended, to the
// test's directory; returns the configuration's path.
std::string WriteJob(const std::string& more);

// Like WriteJob, and builds the index. Fails the running test if that fails.
std::string IndexedJob(const std::string& more = "");

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_COMMAND_SERVE_PROCESS_H_
