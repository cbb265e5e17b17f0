#ifndef BALLAST_TESTS_INTEGRATION_STORAGE_S3_PROCESS_H_
#define BALLAST_TESTS_INTEGRATION_STORAGE_S3_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace ballast {

// A real S3 server over the folders within `root`, which are its buckets:
// `rclone serve s3`, which checks signatures. deploy/setup.sh --tests unpacks
// rclone. Killed by the destructor.
class S3Process {
 public:
  static constexpr char kId[] = "KEYOFTESTS";
  static constexpr char kSecret[] = "hidden/SECRET+1";

  // Path of rclone; empty if there is none.
  static std::string Program();

  // `options` are further ones of rclone. With --cert it serves https.
  explicit S3Process(std::string root, std::vector<std::string> options = {})
      : root_(std::move(root)), options_(std::move(options)) {}
  ~S3Process() { Stop(); }
  S3Process(const S3Process&) = delete;
  S3Process& operator=(const S3Process&) = delete;

  // Returns once it serves, at the same address at every start after the first;
  // false if it does not.
  bool Start();
  void Stop();

  // "127.0.0.1:PORT"; empty before the first start.
  const std::string& address() const { return address_; }

 private:
  const std::string root_;
  const std::vector<std::string> options_;
  std::string address_;
  pid_t process_ = -1;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_INTEGRATION_STORAGE_S3_PROCESS_H_
