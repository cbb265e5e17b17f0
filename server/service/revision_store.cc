#include "server/service/revision_store.h"

#include <sys/random.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include <google/protobuf/text_format.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "server/corpus/file.h"

namespace ballast {
namespace {

// 64 changes of a configuration of 1 MiB, whose text takes at most four
// characters a byte.
constexpr size_t kMaxFileBytes = size_t{300} << 20;

absl::StatusOr<std::string> DrawName() {
  char bytes[16];
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
    return absl::InternalError("the system gives no random bytes");
  }
  return absl::BytesToHexString(absl::string_view(bytes, sizeof(bytes)));
}

// The changes are numbered from 1, and each begins after the one before.
bool IsInOrder(const v1::RevisionBook& book) {
  uint64_t number = 0, step = 0;
  for (const v1::ConfigRevision& revision : book.revisions()) {
    if (revision.number() != ++number || revision.first_step() <= step) {
      return false;
    }
    step = revision.first_step();
  }
  return true;
}

class FileRevisionStore final : public RevisionStore {
 public:
  explicit FileRevisionStore(std::string path) : path_(std::move(path)) {}

  absl::StatusOr<v1::RevisionBook> Read(const std::string& job,
                                        const std::string& server,
                                        bool alone) const override {
    v1::RevisionBook book;
    absl::StatusOr<std::string> text = ReadSmallFile(path_, kMaxFileBytes);
    if (absl::IsNotFound(text.status())) {
      book.set_job(job);
      book.set_server(server);
      BALLAST_ASSIGN_OR_RETURN(*book.mutable_book(), DrawName());
      book.set_complete(alone);
      return book;
    }
    BALLAST_RETURN_IF_ERROR(Annotate(text.status(), "serve.revisions"));
    if (!google::protobuf::TextFormat::ParseFromString(*text, &book) ||
        book.job().empty() || book.book().empty() || !IsInOrder(book)) {
      return absl::DataLossError(
          absl::StrCat("serve.revisions: ", path_,
                       " is no file of revisions, or damaged; restore it, or "
                       "remove it: "
                       "then this server asks all others before it serves"));
    }
    if (book.job() != job) {
      return absl::FailedPreconditionError(absl::StrCat(
          "serve.revisions: ", path_, " is of a job with fingerprint ",
          book.job(), ", and this configuration has ", job,
          "; start the job with the configuration that it was started with, "
          "since the file has the changes, or move the file away to start "
          "another job"));
    }
    if (book.server() != server) {
      return absl::FailedPreconditionError(absl::StrCat(
          "serve.revisions: ", path_, " is the file of server ", book.server(),
          ", and this is ", server,
          "; each server needs its own: a path on a disk of its machine, or "
          "another name"));
    }
    return book;
  }

  absl::Status Write(const v1::RevisionBook& book) override {
    std::string text;
    if (!google::protobuf::TextFormat::PrintToString(book, &text)) {
      return absl::InternalError("serve.revisions cannot be printed");
    }
    return Annotate(WriteFileAtomically(path_, {text}), "serve.revisions");
  }

 private:
  const std::string path_;
};

}  // namespace

std::unique_ptr<RevisionStore> MakeFileRevisionStore(std::string path) {
  return std::make_unique<FileRevisionStore>(std::move(path));
}

}  // namespace ballast
