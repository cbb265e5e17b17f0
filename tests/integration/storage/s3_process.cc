#include "tests/integration/storage/s3_process.h"

#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace ballast {

std::string S3Process::Program() {
  std::string folders[2];
  if (const char* path = getenv("RCLONE_PATH")) folders[0] = path;
  if (const passwd* user = getpwuid(getuid())) {
    folders[1] = std::string(user->pw_dir) + "/.local/share/ballast/rclone";
  }
  for (const std::string& folder : folders) {
    const std::string program = folder + "/rclone";
    if (!folder.empty() && access(program.c_str(), X_OK) == 0) return program;
  }
  return "";
}

bool S3Process::Start() {
  const std::string program = Program();
  const std::string keys = absl::StrCat(kId, ",", kSecret);
  const std::string address = address_.empty() ? "127.0.0.1:0" : address_;
  // Sees at once what a test writes into the folder.
  std::vector<std::string> words = {"rclone",    "serve",
                                    "s3",        "--addr",
                                    address,     "--auth-key",
                                    keys,        "--config",
                                    "/dev/null", "--dir-cache-time",
                                    "0s",        "--vfs-read-wait",
                                    "0s"};
  words.insert(words.end(), options_.begin(), options_.end());
  words.push_back(root_);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int out[2];
  if (program.empty() || pipe(out) != 0) return false;
  process_ = fork();
  if (process_ == 0) {
    // Never outlives the test, nor holds its output open.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out[1], STDOUT_FILENO);
    dup2(out[1], STDERR_FILENO);
    execv(program.c_str(), arguments.data());
    _exit(1);
  }
  close(out[1]);
  FILE* const lines = fdopen(out[0], "r");
  char line[1024];
  bool serves = false;
  while (!serves && fgets(line, sizeof(line), lines) != nullptr) {
    const std::string text = line;
    const size_t begin = text.find("://127.0.0.1:");
    if (begin == text.npos) continue;
    const size_t host = begin + 3;
    address_ =
        text.substr(host, text.find_first_not_of("0123456789.:", host) - host);
    serves = true;
  }
  fclose(lines);
  if (!serves) Stop();
  return serves;
}

void S3Process::Stop() {
  if (process_ <= 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = -1;
}

}  // namespace ballast
