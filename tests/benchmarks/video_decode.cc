// Decodes the frames that qwen-vl-utils' rule samples of each video, to RGB,
// one video after another, and prints one JSON object: frames, and processor
// time of this process and the decoder's. compare_videos.py runs it.
//   video_decode FILE...

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "absl/status/status.h"
#include "common/small_file.h"
#include "server/media/video/decoder/decoder_process.h"
#include "server/media/video/video_plan.h"
#include "server/model/model_videos.h"

namespace ballast {
namespace {

double Seconds(int who) {
  rusage usage = {};
  getrusage(who, &usage);
  return usage.ru_utime.tv_sec + usage.ru_utime.tv_usec * 1e-6 +
         usage.ru_stime.tv_sec + usage.ru_stime.tv_usec * 1e-6;
}

void Must(const absl::Status& status, const char* file) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", file, status.ToString().c_str());
  std::exit(1);
}

int Run(int argc, char** argv) {
  uint64_t frames = 0;
  uint64_t sum = 0;
  {
    DecoderProcess process({});
    const VideoModel model = *FindVideoModel("qwen2_5_vl");
    for (int i = 1; i < argc; ++i) {
      const OwnedFd fd(open(argv[i], O_RDONLY | O_CLOEXEC));
      struct stat stat = {};
      if (fstat(fd.get(), &stat) != 0) {
        Must(absl::NotFoundError("cannot open"), argv[i]);
      }
      const VideoBytes video = {fd.get(), 0,
                                static_cast<uint64_t>(stat.st_size)};
      const auto facts = process.ReadFacts(video);
      Must(facts.status(), argv[i]);
      const auto sampled =
          SampleFrames(model, {facts->frames(), facts->fps}, {}, 0);
      Must(sampled.status(), argv[i]);
      Must(process.Decode(video, *facts, sampled->frames,
                          [&](uint32_t, const DecodedFrame& frame) {
                            sum += frame.rows[0];
                            ++frames;
                            return absl::OkStatus();
                          }),
           argv[i]);
    }
  }  // the process is reaped: its time counts
  std::printf("{\"frames\": %lu, \"cpu_s\": %.3f, \"sum\": %lu}\n", frames,
              Seconds(RUSAGE_SELF) + Seconds(RUSAGE_CHILDREN), sum);
  return 0;
}

}  // namespace
}  // namespace ballast

int main(int argc, char** argv) { return ballast::Run(argc, argv); }
