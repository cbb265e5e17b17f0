#include "server/command/draw/canvas_mat.h"

#include <memory>

#include <opencv2/core/parallel/parallel_backend.hpp>
#include <opencv2/core/utility.hpp>

namespace ballast {
namespace {

// Runs loops on the calling thread. OpenCV's own setting for one thread still
// asks TBB for its number of threads.
class OneThread final : public cv::parallel::ParallelForAPI {
 public:
  void parallel_for(int tasks, FN_parallel_for_body_cb_t body,
                    void* data) override {
    body(0, tasks, data);
  }
  int getThreadNum() const override { return 0; }
  int getNumThreads() const override { return 1; }
  int setNumThreads(int /*threads*/) override { return 1; }
  const char* getName() const override { return "one thread"; }
};

}  // namespace

void KeepOpenCvOnOneThread() {
  static const bool done = [] {
    cv::parallel::setParallelForBackend(std::make_shared<OneThread>(),
                                        /*propagateNumThreads=*/false);
    // 0: no loop is split.
    cv::setNumThreads(0);
    return true;
  }();
  static_cast<void>(done);
}

cv::Mat GetMat(Canvas* canvas) {
  KeepOpenCvOnOneThread();
  return cv::Mat(canvas->height(), canvas->width(), CV_8UC3, canvas->data());
}

}  // namespace ballast
