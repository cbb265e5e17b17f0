#ifndef BALLAST_SERVER_JOB_TEMPLATE_COMPARISON_H_
#define BALLAST_SERVER_JOB_TEMPLATE_COMPARISON_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"
#include "server/sample/sample_source.h"
#include "server/text/model_text.h"
#include "server/text/text_token.h"

namespace ballast {

// What differs between two texts: the place, and what each has there. "": they
// are equal. Pure.
std::string FirstDifference(absl::string_view own, absl::string_view built_in);

// Compares what a built-in template and the template next to the tokenizer make
// of a source's samples. Thread-safe.
class TemplateComparison {
 public:
  // Null if there is nothing to compare: `built_in` is the checkpoint's own
  // template, there is none next to the tokenizer, or no jinja2 renders it.
  // Nothing is owned. Starts a process of Python.
  static std::unique_ptr<TemplateComparison> Create(const ModelText* built_in,
                                                    const Tokenizer* tokenizer);

  // Compares a sample that the built-in template takes, if it is a conversation
  // without videos and among the first kMaxCount. Blocks.
  void Look(const RawSample& sample, size_t images);

  // The difference in one of the samples since the last call, with what to do;
  // "": none. Other samples may differ, too.
  std::string TakeDifference();

 private:
  static constexpr size_t kMaxCount = 32;

  TemplateComparison(const ModelText* built_in,
                     std::unique_ptr<const ModelText> own)
      : built_in_(*built_in), own_(std::move(own)) {}

  const ModelText& built_in_;
  const std::unique_ptr<const ModelText> own_;
  std::atomic<size_t> looked_at_ = 0;
  Mutex mutex_;
  // Of the sample whose name comes first.
  std::string name_ ABSL_GUARDED_BY(mutex_);
  std::string difference_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_JOB_TEMPLATE_COMPARISON_H_
