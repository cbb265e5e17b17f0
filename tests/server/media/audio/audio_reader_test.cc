#include "server/media/audio/audio_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/small_file.h"
#include "server/media/video/video_reader.h"
#include "server/sample/data_fault.h"
#include "tests/fakes/read_file.h"
#include "tests/server/media/audio/golden_audio.h"
#include "tests/server/media/video/made_videos.h"

namespace ballast {
namespace {

// Stereo: speech, and a chirp.
constexpr int64_t kFrames = 66150;  // 1.5 s at 44.1 kHz

std::vector<int16_t> MakeStereo() {
  const std::vector<int16_t> left = MakePcm("speech", kFrames, 3);
  const std::vector<int16_t> right = MakePcm("chirp", kFrames, 5);
  std::vector<int16_t> both;
  for (size_t i = 0; i < left.size(); ++i) {
    both.push_back(left[i]);
    both.push_back(right[i]);
  }
  return both;
}

std::string WriteFile(const std::string& name, const std::string& bytes) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

struct OpenAudio {
  explicit OpenAudio(const std::string& path)
      : fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat stat = {};
    EXPECT_EQ(fstat(fd.get(), &stat), 0) << path;
    bytes = {fd.get(), 0, static_cast<uint64_t>(stat.st_size)};
  }
  OwnedFd fd;
  AudioBytes bytes;
};

// Encodes the stereo audio as `arguments` say.
std::string Encode(const std::string& name, const std::string& arguments) {
  const std::string wav =
      WriteFile("stereo.wav", MakeWav(MakeStereo(), 44100, 2));
  const std::string path = absl::StrCat(testing::TempDir(), "/", name);
  RunFfmpeg(absl::StrCat("-i ", wav, " ", arguments, " ", path));
  return path;
}

// The mean of both channels at 16 kHz, by FFmpeg's soxr. Opus by libopus, which
// FFmpeg lets give 16 bits; FFmpeg's own decoder is up to 2e-3 away.
std::vector<float> ReadWithFfmpeg(const std::string& path) {
  const std::string raw = path + ".f32";
  const bool is_opus = absl::EndsWith(path, ".opus");
  RunFfmpeg(absl::StrCat(is_opus ? "-c:a libopus " : "", "-i ", path,
                         " -af 'aformat=sample_fmts=flt,pan=mono|c0=.5*c0+.5*"
                         "c1,aresample=16000:resampler=soxr:precision=20' -f "
                         "f32le ",
                         raw));
  const std::string bytes = ReadFile(raw);
  std::vector<float> samples(bytes.size() / sizeof(float));
  std::memcpy(samples.data(), bytes.data(), samples.size() * sizeof(float));
  return samples;
}

TEST(AudioReaderTest, PcmAt16KhzIsExact) {
  const std::vector<int16_t> stereo = MakeStereo();
  const OpenAudio file(WriteFile("exact.wav", MakeWav(stereo, 16000, 2)));
  AudioReader reader;
  const auto facts = reader.ReadFacts(file.bytes);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->samples, kFrames);
  EXPECT_EQ(facts->channels, 2);
  const auto samples =
      reader.ReadSamples(file.bytes, *facts, {0, facts->samples});
  ASSERT_TRUE(samples.ok()) << samples.status();
  for (size_t i = 0; i < samples->size(); ++i) {
    ASSERT_EQ((*samples)[i],
              (stereo[2 * i] / 32768.0F + stereo[2 * i + 1] / 32768.0F) / 2);
  }
  const auto part = reader.ReadSamples(file.bytes, *facts, {1234, 40000});
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_TRUE(std::equal(part->begin(), part->end(), samples->begin() + 1234));
}

TEST(AudioReaderTest, EightChannelsAreSummedInNumpysOrder) {
  const std::vector<int16_t> pcm = MakePcm("noise", 8000, 3);
  const OpenAudio file(WriteFile("eight.wav", MakeWav(pcm, 16000, 8)));
  AudioReader reader;
  const AudioFacts facts = *reader.ReadFacts(file.bytes);
  ASSERT_EQ(facts.samples, 1000);
  const auto samples = *reader.ReadSamples(file.bytes, facts, {0, 1000});
  const std::vector<float> all = ToFloats(pcm);
  for (size_t i = 0; i < samples.size(); ++i) {
    const float* x = &all[8 * i];
    ASSERT_EQ(samples[i], (((x[0] + x[1]) + (x[2] + x[3])) +
                           ((x[4] + x[5]) + (x[6] + x[7]))) /
                              8);
  }
}

struct Encoding {
  const char* name;
  const char* arguments;
  AudioFormat format;
  uint32_t rate;
  uint64_t frames;
  bool is_scanned;
};

TEST(AudioReaderTest, EachFormatHasTheCountAndAudioOfItsSource) {
  if (!HasFfmpeg()) GTEST_SKIP() << "no ffmpeg";
  constexpr uint64_t kAll = kFrames;
  // Frames of AAC: 1024 samples, the first before the audio.
  const Encoding encodings[] = {
      {"a.wav", "", AudioFormat::kWav, 44100, kAll, false},
      {"a24.wav", "-c:a pcm_s24le", AudioFormat::kWav, 44100, kAll, false},
      {"float.wav", "-c:a pcm_f32le", AudioFormat::kWav, 44100, kAll, true},
      {"mulaw.wav", "-c:a pcm_mulaw", AudioFormat::kWav, 44100, kAll, false},
      {"rf64.wav", "-rf64 always", AudioFormat::kWav, 44100, kAll, false},
      {"pipe.wav", "-f wav - >", AudioFormat::kWav, 44100, kAll, false},
      {"a.flac", "", AudioFormat::kFlac, 44100, kAll, false},
      {"pipe.flac", "-f flac - >", AudioFormat::kFlac, 44100, kAll, true},
      {"a.mp3", "", AudioFormat::kMp3, 44100, kAll, false},
      {"half.mp3", "-ar 22050", AudioFormat::kMp3, 22050, kAll / 2, false},
      {"a.ogg", "-c:a libvorbis", AudioFormat::kVorbis, 44100, kAll, false},
      {"a.opus", "-c:a libopus", AudioFormat::kOpus, 48000, kAll * 160 / 147,
       false},
      {"low.opus", "-ar 16000 -c:a libopus", AudioFormat::kOpus, 16000,
       kAll * 160 / 441, false},
      {"a.m4a", "-c:a aac", AudioFormat::kM4a, 44100, kAll, false},
      {"early.m4a", "-c:a aac -movflags faststart", AudioFormat::kM4a, 44100,
       kAll, false},
      {"alac.m4a", "-c:a alac", AudioFormat::kM4a, 44100, kAll, false},
      {"parts.m4a", "-c:a aac -movflags frag_keyframe+empty_moov",
       AudioFormat::kM4a, 44100, (kAll + 1023) / 1024 * 1024 + 1024, true},
  };
  AudioReader reader;
  for (const Encoding& encoding : encodings) {
    SCOPED_TRACE(encoding.name);
    const std::string path = Encode(encoding.name, encoding.arguments);
    const OpenAudio file(path);
    const auto facts = reader.ReadFacts(file.bytes);
    ASSERT_TRUE(facts.ok()) << facts.status();
    EXPECT_EQ(facts->format, encoding.format);
    EXPECT_EQ(facts->rate, encoding.rate);
    EXPECT_EQ(facts->channels, 2);
    EXPECT_EQ(facts->frames, encoding.frames);
    EXPECT_EQ(!facts->scan.empty(), encoding.is_scanned) << facts->scan;
    const auto samples =
        reader.ReadSamples(file.bytes, *facts, {0, facts->samples});
    ASSERT_TRUE(samples.ok()) << samples.status();
    ASSERT_EQ(samples->size(), facts->samples);
    // FFmpeg decodes Opus at 48 kHz whatever its header says.
    if (encoding.format == AudioFormat::kOpus && encoding.rate != 48000) {
      continue;
    }
    const std::vector<float> oracle = ReadWithFfmpeg(path);
    const size_t both = std::min(oracle.size(), samples->size());
    // Half a frame of AAC at the end is the padding's.
    ASSERT_GT(both + 512, samples->size());
    double away = 0;
    for (size_t i = 0; i + 512 < both; ++i) {
      away = std::max<double>(away, std::abs((*samples)[i] - oracle[i]));
    }
    EXPECT_LT(away, encoding.format == AudioFormat::kOpus ? 3e-5 : 1e-5);
  }
}

// The audio of videos in several containers is that of the same stream in M4A.
TEST(AudioReaderTest, ReadsTheAudioOfAVideo) {
  if (!HasFfmpeg()) GTEST_SKIP() << "no ffmpeg";
  const std::string m4a = Encode("stream.m4a", "-c:a aac");
  const std::string pictures = MakeVideo("mute.mp4", "32x32", "2", "");
  AudioReader reader;
  const OpenAudio alone(m4a);
  const AudioFacts wanted = *reader.ReadFacts(alone.bytes);
  const auto samples =
      *reader.ReadSamples(alone.bytes, wanted, {0, wanted.samples});
  for (const char* name : {"both.mp4", "both.mov", "both.mkv", "both.ts"}) {
    SCOPED_TRACE(name);
    const std::string path = absl::StrCat(testing::TempDir(), "/", name);
    RunFfmpeg(absl::StrCat("-i ", pictures, " -i ", m4a,
                           " -map 0:v -map 1:a -c copy ", path));
    const OpenAudio file(path);
    const auto facts = reader.ReadFacts(file.bytes, /*in_video=*/true);
    ASSERT_TRUE(facts.ok()) << facts.status();
    EXPECT_EQ(facts->format, AudioFormat::kVideo);
    EXPECT_EQ(facts->rate, wanted.rate);
    EXPECT_EQ(facts->channels, wanted.channels);
    const bool is_mp4 = name[5] == 'm' && name[6] != 'k';
    EXPECT_EQ(facts->scan.empty(), is_mp4) << facts->scan;
    const auto found =
        reader.ReadSamples(file.bytes, *facts, {0, facts->samples});
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ(found->size(), facts->samples);
    if (is_mp4) {
      EXPECT_EQ(*found, samples);
    }
  }
  const OpenAudio mute(pictures);
  const auto none = reader.ReadFacts(mute.bytes, /*in_video=*/true);
  EXPECT_TRUE(IsDataFault(none.status())) << none.status();
  EXPECT_TRUE(absl::StrContains(none.status().message(),
                                "the file has no audio stream"))
      << none.status();
}

// A WAV file of float32 at 16 kHz.
std::string MakeFloatWav(const std::vector<float>& samples) {
  std::string wav = MakeWav(std::vector<int16_t>(2 * samples.size()), 16000, 1);
  const auto put = [&](size_t at, uint32_t value, size_t bytes) {
    std::memcpy(&wav[at], &value, bytes);
  };
  put(20, 3, 2);  // floats
  put(28, 16000 * 4, 4);
  put(32, 4, 2);
  put(34, 32, 2);
  std::memcpy(&wav[44], samples.data(), samples.size() * sizeof(float));
  return wav;
}

TEST(AudioReaderTest, SamplesThatAreNotFiniteAreADataFault) {
  AudioReader reader;
  std::vector<float> samples(5000, 0.25F);
  const OpenAudio sound(WriteFile("sound.wav", MakeFloatWav(samples)));
  const auto facts = reader.ReadFacts(sound.bytes);
  ASSERT_TRUE(facts.ok()) << facts.status();
  for (const float value : {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
    samples[4321] = value;
    const OpenAudio file(WriteFile("not.wav", MakeFloatWav(samples)));
    for (const absl::Status& status :
         {reader.ReadFacts(file.bytes).status(),
          reader.ReadSamples(file.bytes, *facts, {0, 5000}).status()}) {
      EXPECT_TRUE(IsDataFault(status)) << status;
      EXPECT_TRUE(absl::StrContains(status.message(),
                                    "sample 4321 is not a finite number"))
          << status;
    }
  }
  // A finite one of which features are none.
  samples[4321] = 3e38F;
  const absl::Status status =
      reader
          .ReadFacts(
              OpenAudio(WriteFile("loud.wav", MakeFloatWav(samples))).bytes)
          .status();
  EXPECT_TRUE(IsDataFault(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "sample 4321 is beyond 1e10"))
      << status;
}

// Replaces the edit list of the only track of `mp4`, whose boxes of metadata
// are at its end, by edits of (duration in ms, media time).
std::string WithEdits(std::string mp4,
                      const std::vector<std::pair<uint32_t, int32_t>>& edits) {
  const size_t elst = mp4.rfind("elst") - 4;
  const auto get = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) {
      value = value << 8 | static_cast<uint8_t>(mp4[at + i]);
    }
    return value;
  };
  const auto big = [](uint32_t value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) {
      bytes.push_back(static_cast<char>(value >> shift));
    }
    return bytes;
  };
  std::string list =
      big(0) + "elst" + big(0) + big(static_cast<uint32_t>(edits.size()));
  for (const auto& [duration, time] : edits) {
    list += big(duration) + big(static_cast<uint32_t>(time)) + big(1 << 16);
  }
  list.replace(0, 4, big(static_cast<uint32_t>(list.size())));
  const uint32_t old = get(elst);
  for (const char* box : {"moov", "trak", "edts"}) {
    const size_t at = mp4.rfind(box) - 4;
    mp4.replace(at, 4, big(get(at) + static_cast<uint32_t>(list.size()) - old));
  }
  return mp4.replace(elst, old, list);
}

TEST(AudioReaderTest, PlaysWhatTheEditListSays) {
  if (!HasFfmpeg()) GTEST_SKIP() << "no ffmpeg";
  constexpr int32_t kPriming = 1024;
  const std::string whole = ReadFile(Encode("edit.m4a", "-ar 16000 -c:a aac"));
  AudioReader reader;
  const auto read = [&](const std::string& bytes) {
    const OpenAudio file(WriteFile("edited.m4a", bytes));
    const auto facts = reader.ReadFacts(file.bytes);
    EXPECT_TRUE(facts.ok()) << facts.status();
    const auto samples =
        reader.ReadSamples(file.bytes, *facts, {0, facts->samples});
    EXPECT_TRUE(samples.ok()) << samples.status();
    return *samples;
  };
  const std::vector<float> all = read(whole);
  ASSERT_EQ(all.size(), 24000u);
  const auto part = [&](size_t from, size_t to) {
    return std::vector<float>(all.begin() + from, all.begin() + to);
  };
  // The end.
  EXPECT_EQ(read(WithEdits(whole, {{850, kPriming}})), part(0, 13600));
  // Nothing is played first, which is left out; then two parts, with silence
  // between them.
  std::vector<float> wanted = part(3200, 8000);
  wanted.resize(wanted.size() + 1600);
  const std::vector<float> more = part(12800, 17600);
  wanted.insert(wanted.end(), more.begin(), more.end());
  EXPECT_EQ(read(WithEdits(whole, {{250, -1},
                                   {300, kPriming + 3200},
                                   {100, -1},
                                   {300, kPriming + 12800}})),
            wanted);
  // A gap in the stream, and an edit up to the stream's end.
  wanted = part(0, 1600);
  const std::vector<float> rest = part(8000, 24000);
  wanted.insert(wanted.end(), rest.begin(), rest.end());
  EXPECT_EQ(read(WithEdits(whole, {{100, kPriming}, {1000, kPriming + 8000}})),
            wanted);
  // Twice.
  const OpenAudio twice(WriteFile(
      "twice.m4a", WithEdits(whole, {{300, kPriming}, {300, kPriming}})));
  const absl::Status status = reader.ReadFacts(twice.bytes).status();
  EXPECT_TRUE(IsDataFault(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "plays audio twice"))
      << status;
}

// A cut without decoding leaves an edit list for each track.
TEST(AudioReaderTest, ThePicturesOfACutVideoLastAsLongAsItsAudio) {
  if (!HasFfmpeg()) GTEST_SKIP() << "no ffmpeg";
  const std::string m4a = Encode("long.m4a", "-ar 16000 -c:a aac");
  const std::string pictures =
      MakeVideo("long.mp4", "32x32", "2", "-c:v libx264 -g 15 -bf 2");
  const std::string both = VideoPath("long_both.mp4");
  RunFfmpeg(absl::StrCat("-i ", pictures, " -i ", m4a,
                         " -map 0:v -map 1:a -c copy ", both));
  const std::string cut = VideoPath("cut_both.mp4");
  RunFfmpeg(absl::StrCat("-ss 0.4 -i ", both, " -t 0.7 -c copy ", cut));
  const OpenVideo video(cut);
  VideoReader frames(1);
  const auto facts = frames.ReadFacts(video.bytes);
  ASSERT_TRUE(facts.ok()) << facts.status();
  AudioReader reader;
  const OpenAudio audio(cut);
  const auto heard = reader.ReadFacts(audio.bytes, /*in_video=*/true);
  ASSERT_TRUE(heard.ok()) << heard.status();
  // A frame, and a block of AAC.
  EXPECT_NEAR(static_cast<double>(heard->samples) / 16000,
              facts->frames() / 30.0, 1.0 / 30 + 0.064);
  EXPECT_TRUE(
      reader.ReadSamples(audio.bytes, *heard, {0, heard->samples}).ok());
}

TEST(AudioReaderTest, OtherCodecsInMp4AreRefusedByName) {
  if (!HasFfmpeg()) GTEST_SKIP() << "no ffmpeg";
  AudioReader reader;
  const OpenAudio file(Encode("mp3.mp4", "-c:a libmp3lame"));
  const absl::Status status = reader.ReadFacts(file.bytes).status();
  EXPECT_TRUE(IsDataFault(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(),
                                "audio of codec mp3; wanted AAC or ALAC"))
      << status;
}

TEST(AudioReaderTest, Mp3OfAPipeIsCountedByDecoding) {
  if (!HasFfmpeg()) GTEST_SKIP() << "no ffmpeg";
  const OpenAudio file(Encode("bare.mp3", "-write_xing 0"));
  AudioReader reader;
  const auto facts = reader.ReadFacts(file.bytes);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_NE(facts->scan, "");
  EXPECT_EQ(facts->frames % 1152, 0);
  EXPECT_NEAR(static_cast<double>(facts->frames), kFrames, 3 * 1152);
  EXPECT_TRUE(reader.ReadSamples(file.bytes, *facts, {0, facts->samples}).ok());
}

TEST(AudioReaderTest, ClipsAreSlicesOfAllSamples) {
  if (!HasFfmpeg()) GTEST_SKIP() << "no ffmpeg";
  AudioReader reader;
  for (const std::string name : {"clip.flac", "clip.m4a"}) {
    const OpenAudio file(Encode(name, ""));
    const AudioFacts facts = *reader.ReadFacts(file.bytes);
    const auto all = *reader.ReadSamples(file.bytes, facts, {0, facts.samples});
    const SampleRange range = *CutClip({0.25, 1.125}, facts.samples);
    const auto clip = *reader.ReadSamples(file.bytes, facts, range);
    ASSERT_EQ(clip.size(), 14000);
    EXPECT_TRUE(std::equal(clip.begin(), clip.end(), all.begin() + 4000));
  }
}

TEST(AudioReaderTest, CutFilesAreDataFaults) {
  if (!HasFfmpeg()) GTEST_SKIP() << "no ffmpeg";
  AudioReader reader;
  for (const std::string name :
       {"cut.wav", "cut.flac", "cut.mp3", "cut.ogg", "cut.opus", "cut.m4a"}) {
    const std::string whole = ReadFile(Encode(name, ""));
    for (const double share : {0.02, 0.5, 0.9}) {
      SCOPED_TRACE(absl::StrCat(name, " ", share));
      const OpenAudio file(WriteFile(
          "less_" + name,
          whole.substr(0, static_cast<size_t>(
                              share * static_cast<double>(whole.size())))));
      // Not at serving alone: what an index accepts is delivered.
      const absl::Status status = reader.ReadFacts(file.bytes).status();
      EXPECT_TRUE(IsDataFault(status)) << status;
    }
  }
}

// Of two files one behind the other all readers play the first, both or none.
TEST(AudioReaderTest, WhatIsAcceptedOfJoinedFilesIsDelivered) {
  if (!HasFfmpeg()) GTEST_SKIP() << "no ffmpeg";
  AudioReader reader;
  for (const std::string name :
       {"one.wav", "one.mp3", "one.ogg", "one.opus", "one.m4a"}) {
    SCOPED_TRACE(name);
    const std::string one = ReadFile(Encode(name, ""));
    const OpenAudio file(WriteFile("two_" + name, one + one));
    const auto facts = reader.ReadFacts(file.bytes);
    if (!facts.ok()) {
      EXPECT_TRUE(IsDataFault(facts.status())) << facts.status();
      continue;
    }
    const absl::Status read =
        reader.ReadSamples(file.bytes, *facts, {0, facts->samples}).status();
    EXPECT_TRUE(read.ok()) << read;
  }
}

// The last frame of FLAC tells where the stream ends; a tag of ID3v1 may
// follow.
TEST(AudioReaderTest, FlacThatEndsElsewhereIsADataFault) {
  if (!HasFfmpeg()) GTEST_SKIP() << "no ffmpeg";
  AudioReader reader;
  const std::string whole = ReadFile(Encode("whole.flac", ""));
  const OpenAudio tagged(
      WriteFile("tagged.flac", whole + "TAG" + std::string(125, '\0')));
  const auto facts = reader.ReadFacts(tagged.bytes);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->frames, kFrames);
  EXPECT_EQ(facts->scan, "");
  // Other bytes behind it: it is decoded, and found whole.
  const OpenAudio longer(
      WriteFile("longer.flac", whole + std::string(1000, 'x')));
  const auto decoded = reader.ReadFacts(longer.bytes);
  if (decoded.ok()) {
    EXPECT_EQ(decoded->frames, kFrames);
    EXPECT_NE(decoded->scan, "");
  }
  // STREAMINFO counts 4096 more.
  std::string more = whole;
  more[24] = static_cast<char>(more[24] + 16);
  const OpenAudio wrong(WriteFile("more.flac", more));
  const absl::Status status = reader.ReadFacts(wrong.bytes).status();
  EXPECT_TRUE(IsDataFault(status)) << status;
  EXPECT_TRUE(absl::StrContains(
      status.message(), absl::StrCat("the header says ", kFrames + 4096)))
      << status;
}

// Where FFmpeg begins it elsewhere without encoding it again, the first page
// has more samples than its position says, which libsndfile refuses.
TEST(AudioReaderTest, OpusThatLibsndfileRefusesIsADataFault) {
  if (!HasFfmpeg()) GTEST_SKIP() << "no ffmpeg";
  const std::string whole = Encode("whole.opus", "-ar 16000 -c:a libopus");
  const std::string cut = absl::StrCat(testing::TempDir(), "/cut_copy.opus");
  RunFfmpeg(absl::StrCat("-ss 0.5 -i ", whole, " -t 1 -c copy ", cut));
  AudioReader reader;
  const absl::Status status = reader.ReadFacts(OpenAudio(cut).bytes).status();
  EXPECT_TRUE(IsDataFault(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "malformed")) << status;
}

TEST(AudioReaderTest, DamagedFilesCostAtMostThemselves) {
  if (!HasFfmpeg()) GTEST_SKIP() << "no ffmpeg";
  AudioReader reader;
  std::mt19937_64 random(17);
  int refused = 0;
  for (const std::string name :
       {"bad.wav", "bad.flac", "bad.mp3", "bad.ogg", "bad.opus", "bad.m4a"}) {
    const std::string whole = ReadFile(Encode(name, "-t 0.5"));
    for (int i = 0; i < 12; ++i) {
      std::string damaged = whole;
      for (int k = 0; k < 1 + i; ++k) {
        // Headers more often than samples.
        const size_t below = k % 2 == 0 ? damaged.size() : 200;
        damaged[random() % below] = static_cast<char>(random());
      }
      const OpenAudio file(WriteFile("damaged_" + name, damaged));
      const auto facts = reader.ReadFacts(file.bytes);
      if (!facts.ok()) {
        EXPECT_TRUE(IsDataFault(facts.status())) << facts.status();
        ++refused;
        continue;
      }
      const auto samples = reader.ReadSamples(
          file.bytes, *facts, {0, std::min<uint64_t>(facts->samples, 1 << 20)});
      EXPECT_TRUE(samples.ok() || IsDataFault(samples.status()))
          << samples.status();
      refused += samples.ok() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 20);
  const OpenAudio audio(Encode("after.flac", ""));
  EXPECT_TRUE(reader.ReadFacts(audio.bytes).ok());
}

TEST(AudioReaderTest, OtherFactsThanPlannedAreADataFault) {
  const OpenAudio file(WriteFile("other.wav", MakeWav(MakeStereo(), 16000, 2)));
  AudioReader reader;
  AudioFacts facts = *reader.ReadFacts(file.bytes);
  facts.frames += 1;
  facts.samples += 1;
  EXPECT_TRUE(IsDataFault(
      reader.ReadSamples(file.bytes, facts, {0, facts.samples}).status()));
  facts.frames -= 2;
  facts.samples -= 2;
  EXPECT_TRUE(IsDataFault(
      reader.ReadSamples(file.bytes, facts, {0, facts.samples}).status()));
  EXPECT_TRUE(IsDataFault(
      reader.ReadSamples(file.bytes, facts, {0, kMaxClipSamples + 1})
          .status()));
}

TEST(AudioReaderTest, AFileThatCannotBeReadIsUnavailable) {
  const OwnedFd folder(open(testing::TempDir().c_str(), O_RDONLY | O_CLOEXEC));
  AudioReader reader;
  EXPECT_EQ(reader.ReadFacts({folder.get(), 0, 100}).status().code(),
            absl::StatusCode::kUnavailable);
  AudioFacts facts;
  facts.rate = 16000;
  facts.channels = 1;
  facts.frames = facts.samples = 10;
  EXPECT_EQ(reader.ReadSamples({folder.get(), 0, 100}, facts, {0, 10})
                .status()
                .code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace ballast
