// WAV, FLAC, MP3, Ogg Vorbis and Ogg Opus, by libsndfile.

#include <errno.h>
#include <sndfile.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "server/media/audio/decoder/audio_input.h"

namespace ballast::audio_decoder {
namespace {

class SndfileInput : public AudioInput {
 public:
  SndfileInput(int fd, uint64_t offset, uint64_t bytes)
      : fd_(fd), offset_(offset), bytes_(static_cast<sf_count_t>(bytes)) {}
  ~SndfileInput() override {
    if (file_ != nullptr) sf_close(file_);
  }

  bool Open(Fault* fault) {
    SF_VIRTUAL_IO io = {};
    io.get_filelen = [](void* self) { return Self(self)->bytes_; };
    io.seek = [](sf_count_t to, int whence, void* self) {
      return Self(self)->Seek(to, whence);
    };
    io.read = [](void* to, sf_count_t bytes, void* self) {
      return Self(self)->ReadBytes(static_cast<char*>(to), bytes);
    };
    io.write = [](const void*, sf_count_t, void*) { return sf_count_t{0}; };
    io.tell = [](void* self) { return Self(self)->next_; };
    file_ = sf_open_virtual(&io, SFM_READ, &info_, this);
    if (file_ != nullptr) return true;
    SetFault(sf_strerror(nullptr), fault);
    return false;
  }

  Facts facts() const override {
    return {static_cast<uint32_t>(info_.samplerate),
            static_cast<uint32_t>(info_.channels), 0};
  }

  size_t Read(float* to, size_t most, Fault* fault) override {
    const sf_count_t got =
        sf_readf_float(file_, to, static_cast<sf_count_t>(most));
    if (io_error_ != 0 || sf_error(file_) != SF_ERR_NO_ERROR) {
      SetFault(sf_strerror(file_), fault);
      return 0;
    }
    return static_cast<size_t>(std::max<sf_count_t>(got, 0));
  }

 private:
  static SndfileInput* Self(void* self) {
    return static_cast<SndfileInput*>(self);
  }

  sf_count_t Seek(sf_count_t to, int whence) {
    if (whence == SEEK_CUR) to += next_;
    if (whence == SEEK_END) to += bytes_;
    if (to < 0) return -1;
    next_ = to;
    return to;
  }

  sf_count_t ReadBytes(char* to, sf_count_t bytes) {
    sf_count_t done = 0;
    bytes = std::min(bytes, bytes_ - next_);
    while (done < bytes) {
      const ssize_t got =
          pread(fd_, to + done, static_cast<size_t>(bytes - done),
                static_cast<off_t>(offset_) + next_);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) io_error_ = errno;
      if (got <= 0) break;
      done += got;
      next_ += got;
    }
    return done;
  }

  void SetFault(const char* what, Fault* fault) const {
    if (io_error_ != 0) {
      *fault = {Outcome::kUnread, strerror(io_error_)};
    } else {
      *fault = {Outcome::kRefused, std::string("libsndfile: ") + what};
    }
  }

  const int fd_;
  const uint64_t offset_;
  const sf_count_t bytes_;
  sf_count_t next_ = 0;
  int io_error_ = 0;
  SF_INFO info_ = {};
  SNDFILE* file_ = nullptr;
};

}  // namespace

std::unique_ptr<AudioInput> OpenAudio(int fd, uint64_t offset, uint64_t bytes,
                                      Fault* fault) {
  auto input = std::make_unique<SndfileInput>(fd, offset, bytes);
  if (!input->Open(fault)) return nullptr;
  return input;
}

}  // namespace ballast::audio_decoder
