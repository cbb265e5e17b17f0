#ifndef BALLAST_SERVER_FILES_HUB_STORE_H_
#define BALLAST_SERVER_FILES_HUB_STORE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "server/files/object_store.h"

namespace ballast {

// Files of the Hugging Face hub (hf://) and of web servers (https://, http://),
// by HTTP with ranges.

// A path in the hub: "datasets/OWNER/NAME@REVISION/data/a.parquet".
struct HubPath {
  std::string repository;  // "OWNER/NAME"
  // A branch, a tag or a commit; "main" if the path names none. A slash in it
  // is "%2F". "~parquet", the hub's own Parquet, is refs%2Fconvert%2Fparquet.
  std::string revision = "main";
  std::string file;    // "data/a.parquet"; may be empty
  std::string before;  // the path up to the file, without a slash at its end
};

// Errors: INVALID_ARGUMENT (another thing than a data set), naming the path.
// Pure.
absl::StatusOr<HubPath> ParseHubPath(absl::string_view path);

// Where the hub is, and who asks. As its own tools find them: HF_ENDPOINT;
// HF_TOKEN, or the file of HF_TOKEN_PATH, HF_HOME/token or
// ~/.cache/huggingface/token. Errors: FAILED_PRECONDITION (an endpoint that is
// no http:// or https:// address; a token of more than one word, or one that
// would go unencrypted to another machine).
struct HubAccess {
  std::string endpoint = "https://huggingface.co";
  std::string token;  // "": none. Never printed
};
absl::StatusOr<HubAccess> ResolveHubAccess();

// The hub. A branch or a tag is taken for the commit that it is when a process
// first asks, and stays that commit. The token goes to the endpoint alone, not
// to where it redirects. `clock` is not owned.
std::unique_ptr<ObjectStore> MakeHubStore(HubAccess access, Clock* clock);

// `path` with the commit that its revision is now in place of the revision; as
// it is where the hub names no commit. Asks the hub. Errors: as ParseHubPath
// and ObjectStore.
absl::StatusOr<std::string> PinHubPath(const std::string& path,
                                       HubAccess access, Clock* clock);

// Web servers, whose paths are "HOST/…" of `scheme`. They cannot be listed. A
// server must answer ranges, and name a version by ETag or Last-Modified.
std::unique_ptr<ObjectStore> MakeWebStore(const std::string& scheme,
                                          Clock* clock);

}  // namespace ballast

#endif  // BALLAST_SERVER_FILES_HUB_STORE_H_
