#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/ballastctl/commands.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

// The folder of this program, and the programs of PATH, have ballast-server.
std::string ServerProgram() {
  std::error_code error;
  const std::filesystem::path own =
      std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path beside = own.parent_path() / "ballast-server";
  return !error && access(beside.c_str(), X_OK) == 0 ? beside.string()
                                                     : "ballast-server";
}

// Standard output of a program, whose standard error is this one's.
absl::StatusOr<std::string> RunProgram(const std::vector<std::string>& words) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  std::vector<char*> arguments;
  for (const std::string& word : words) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t process = 0;
  const int failed = posix_spawnp(&process, arguments[0], &actions, nullptr,
                                  arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string output;
  char bytes[4096];
  for (ssize_t count = 0;
       failed == 0 && (count = read(ends[0], bytes, sizeof(bytes))) > 0;) {
    output.append(bytes, count);
  }
  close(ends[0]);
  if (failed != 0) return absl::ErrnoToStatus(failed, words[0]);
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return output;
  return absl::FailedPreconditionError(absl::StrCat(
      "`", absl::StrJoin(words, " "), "` failed, as it says above"));
}

}  // namespace

absl::StatusOr<v1::Fingerprint> FingerprintOf(const std::string& config) {
  BALLAST_ASSIGN_OR_RETURN(const std::string output,
                           RunProgram({ServerProgram(), "inspect",
                                       "fingerprint", "--config", config}));
  using Json = nlohmann::json;
  const Json json = Json::parse(output, nullptr, /*allow_exceptions=*/false);
  v1::Fingerprint fingerprint;
  if (json.is_object()) {
    fingerprint.set_hash(json.value("fingerprint", ""));
    fingerprint.set_data_hash(json.value("data_fingerprint", ""));
    const Json entries = json.value("entries", Json::object());
    for (const auto& [key, value] : entries.items()) {
      v1::Fingerprint::Entry& entry = *fingerprint.add_entries();
      entry.set_key(key);
      entry.set_value(value.is_string() ? value.get<std::string>() : "");
    }
  }
  if (!fingerprint.hash().empty()) return fingerprint;
  return absl::InternalError(absl::StrCat(
      "`ballast-server inspect fingerprint` prints no fingerprint of ", config,
      "; is it of another version?"));
}

absl::Status CheckServes(LoaderClient* client, const std::string& config,
                         const v1::Fingerprint& wanted) {
  const absl::Status same = client->Attach(v1::Role(), wanted).status();
  if (!absl::IsFailedPrecondition(same)) return same;
  return absl::FailedPreconditionError(absl::StrCat(
      "the server at ", client->address(), " serves another job than ", config,
      ": ", same.message(),
      ". Does another user's server have this port? Take port 0 or a Unix "
      "socket in a folder of your own"));
}

}  // namespace ballast
