#include "server/media/audio/audio_header.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "server/sample/data_fault.h"
#include "tests/server/media/audio/golden_audio.h"
#include "tests/server/media/audio/made_headers.h"

namespace ballast {
namespace {

absl::StatusOr<AudioHeader> Read(const std::string& bytes) {
  return ReadAudioHeader(
      bytes.size(),
      [&](uint64_t offset, uint64_t count) -> absl::StatusOr<std::string> {
        EXPECT_LE(offset + count, bytes.size());
        return bytes.substr(offset, count);
      });
}

void ExpectFault(const std::string& bytes, absl::string_view message) {
  const auto header = Read(bytes);
  EXPECT_TRUE(IsDataFault(header.status())) << header.status();
  EXPECT_TRUE(absl::StrContains(header.status().message(), message))
      << header.status();
}

std::string PlainWav() {
  return MakeWav(std::vector<int16_t>(2000, 7), 22050, 2);
}

TEST(AudioHeaderTest, WavCountsTheBytesOfItsSamples) {
  const auto header = Read(PlainWav());
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->format, AudioFormat::kWav);
  EXPECT_EQ(header->rate, 22050);
  EXPECT_EQ(header->channels, 2);
  EXPECT_EQ(header->samples, 1000);
}

TEST(AudioHeaderTest, WavOfAPipeReachesToTheEndOfTheFile) {
  for (const uint64_t unknown : {0xFFFFFFFFu, 0x7FFFF000u}) {
    std::string wav = PlainWav();
    wav.replace(40, 4, Little(unknown, 4));
    EXPECT_EQ(Read(wav)->samples, 1000);
  }
}

TEST(AudioHeaderTest, WavHasOtherChunksBeforeItsSamples) {
  std::string wav = PlainWav();
  wav.insert(36, "LIST" + Little(3, 4) + std::string(4, 'x'));
  EXPECT_EQ(Read(wav)->samples, 1000);
}

TEST(AudioHeaderTest, Rf64CountsIn64Bits) {
  std::string wav = PlainWav();
  wav.replace(0, 4, "RF64");
  wav.replace(40, 4, Little(0xFFFFFFFF, 4));
  wav.insert(12, "ds64" + Little(28, 4) + Little(0, 8) + Little(400, 8) +
                     std::string(12, '\0'));
  EXPECT_EQ(Read(wav)->samples, 100);
}

TEST(AudioHeaderTest, DamagedWavIsAFault) {
  const std::string wav = PlainWav();
  ExpectFault(wav.substr(0, 3000), "cut short: samples of 4000 bytes");
  ExpectFault(wav.substr(0, 42), "cut short");
  ExpectFault(wav.substr(0, 12), "cut short");
  const auto with = [&](size_t at, const std::string& bytes) {
    std::string other = wav;
    other.replace(at, bytes.size(), bytes);
    return other;
  };
  ExpectFault(with(22, Little(0, 2)), "takes");
  ExpectFault(with(24, Little(0, 4)), "0 samples a second");
  ExpectFault(with(32, Little(3, 2)), "takes 3 bytes; wanted 4");
  ExpectFault(with(40, Little(0, 4)), "holds no sample");
  ExpectFault(with(12, "junk"), "before the chunk fmt");
  std::string chunks = wav.substr(0, 36);
  for (int i = 0; i < 1001; ++i) chunks += "junk" + Little(0, 4);
  ExpectFault(chunks, "no chunk data");
}

TEST(AudioHeaderTest, CompressedWavIsReadWhole) {
  std::string wav = PlainWav();
  wav.replace(20, 2, Little(0x11, 2));  // IMA ADPCM
  const auto header = Read(wav);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->samples, std::nullopt);
  EXPECT_NE(header->scan, "");
}

TEST(AudioHeaderTest, FlacCountsInStreamInfo) {
  for (const std::string& tag : {std::string(), Id3(300)}) {
    const auto header = Read(tag + Flac(48000, 8, 0x912345678));
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->format, AudioFormat::kFlac);
    EXPECT_EQ(header->rate, 48000);
    EXPECT_EQ(header->channels, 8);
    EXPECT_EQ(header->samples, 0x912345678);
  }
  const auto piped = Read(Flac(16000, 1, 0));
  EXPECT_EQ(piped->samples, std::nullopt);
  EXPECT_NE(piped->scan, "");
  ExpectFault(Flac(16000, 1, 5).substr(0, 30), "cut short");
  ExpectFault(Flac(0, 1, 5), "0 samples a second");
  ExpectFault("fLaC" + std::string(60, '\0'), "STREAMINFO");
}

TEST(AudioHeaderTest, Mp3CountsWithoutDelayAndPadding) {
  const std::string mp3 = Mp3(Info(9, 417 * 10, 576, 1000, "LAME3.100"), 10);
  for (const std::string& tag : {std::string(), Id3(1000), Id3(7) + Id3(5)}) {
    const auto header = Read(tag + mp3);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->format, AudioFormat::kMp3);
    EXPECT_EQ(header->rate, 44100);
    EXPECT_EQ(header->channels, 2);
    EXPECT_EQ(header->samples, 9 * 1152 - 576 - 1000);
  }
  ExpectFault(mp3.substr(0, 2000), "cut short: MP3 of 4170 bytes");
  // libsndfile leaves out 529 samples more at the start, and as many fewer at
  // the end, if there are so many.
  for (const uint64_t padding : {0, 100, 529}) {
    const auto header =
        Read(Mp3(Info(9, 417 * 10, 576, padding, "Lavc59.37"), 10));
    EXPECT_EQ(header->samples, 9 * 1152 - (576 + 529));
  }
}

TEST(AudioHeaderTest, Mp3WithoutACountIsReadWhole) {
  for (const std::string& mp3 :
       {Mp3("", 10), Mp3(Info(9, 4170, 576, 1000, std::string(9, '\0')), 10),
        Mp3(Info(1, 4170, 576, 1000, "LAME3.100"), 10),
        Mp3(Info(0, 4170, 0, 0, "LAME3.100"), 10)}) {
    const auto header = Read(mp3);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->samples, std::nullopt);
    EXPECT_NE(header->scan, "");
  }
}

TEST(AudioHeaderTest, Mp3BehindMp3IsAFault) {
  const std::string one = Mp3(Info(9, 4170, 576, 1000, "LAME3.100"), 10);
  ExpectFault(one + one, "a second stream of MP3 begins at byte 4170");
  ExpectFault(one + Id3(200) + one, "begins at byte 4170");
  // A tag at the end, and a length without the last frame.
  EXPECT_TRUE(Read(one + "TAG" + std::string(125, '\0')).ok());
  EXPECT_TRUE(Read(Mp3(Info(9, 3753, 576, 1000, "LAME3.100"), 10)).ok());
}

TEST(AudioHeaderTest, OpusEndsAtTheLastPagesPosition) {
  const std::vector<std::pair<uint64_t, uint64_t>> rates = {
      {0, 8000},      {8000, 8000},   {11025, 12000}, {16000, 16000},
      {22050, 24000}, {44100, 48000}, {48000, 48000}, {96000, 48000}};
  for (const auto& [named, decoded] : rates) {
    const auto header = Read(Ogg(OpusHead(312, named), 48000 + 312 + 5));
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->format, AudioFormat::kOpus);
    EXPECT_EQ(header->channels, 2);
    EXPECT_EQ(header->rate, decoded) << named;
    EXPECT_EQ(header->samples, 48005 / (48000 / decoded)) << named;
  }
}

TEST(AudioHeaderTest, VorbisEndsAtTheLastPagesPosition) {
  const std::string head = "\x01vorbis" + Little(0, 4) + Big(1, 1) +
                           Little(44100, 4) + std::string(14, '\0');
  const auto header = Read(Ogg(head, 123456));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->format, AudioFormat::kVorbis);
  EXPECT_EQ(header->channels, 1);
  EXPECT_EQ(header->rate, 44100);
  EXPECT_EQ(header->samples, 123456);
}

TEST(AudioHeaderTest, DamagedOggIsAFault) {
  const std::string opus = Ogg(OpusHead(312, 48000), 96312);
  ExpectFault(opus.substr(0, opus.size() - 1), "cut short");
  ExpectFault(opus + "x", "other bytes");
  ExpectFault(Ogg(OpusHead(312, 48000), 96312, /*flags=*/0), "cut short");
  ExpectFault(Ogg(OpusHead(312, 48000), 312), "no sample");
  ExpectFault(Ogg("Speex   " + std::string(80, '\0'), 5), "neither Vorbis");
  ExpectFault("OggS" + std::string(40, '\xFF'), "first page");
  EXPECT_NE(Read(Ogg(OpusHead(312, 48000), 96312, 4, /*serial=*/8))->scan, "");
  ExpectFault(opus + opus, absl::StrCat("begins at byte ", opus.size()));
  std::string flipped = opus;
  flipped[flipped.size() / 2] ^= 1;
  ExpectFault(flipped, "its checksum is not that of its bytes");
  const size_t second = opus.find("OggS", 1);
  std::string between = opus;
  between.insert(second, "x");
  ExpectFault(between, absl::StrCat("no page of Ogg at byte ", second));
  EXPECT_NE(Read(Ogg(OpusHead(312, 48000), ~uint64_t{0}))->scan, "");
}

TEST(AudioHeaderTest, FfmpegReadsM4a) {
  const auto header = Read(Big(24, 4) + "ftypM4A " + std::string(12, '\0'));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->format, AudioFormat::kM4a);
}

TEST(AudioHeaderTest, OtherFilesAreFaults) {
  for (const std::string& bytes :
       {std::string(), std::string("x"), std::string("\xFF"),
        std::string(100, '\0'), std::string("RIFF    AVI "), Id3(0), Id3(50),
        std::string("\xFF\xFB") + std::string(50, '\0')}) {
    EXPECT_TRUE(IsDataFault(Read(bytes).status())) << bytes;
  }
}

TEST(AudioHeaderTest, FormsThatAreNotReadAreNamed) {
  const std::string rest(100, '\0');
  ExpectFault("NIST_1A\n   1024\n" + rest, "found NIST SPHERE; wanted WAV");
  ExpectFault("FORM    AIFF" + rest, "found AIFF;");
  ExpectFault("FORM    AIFC" + rest, "found AIFF-C;");
  ExpectFault(".snd" + rest, "found AU;");
  ExpectFault("caff" + rest, "found CAF;");
  ExpectFault("\x1A\x45\xDF\xA3" + rest, "found WebM or Matroska;");
  ExpectFault("\xFF\xF1" + rest, "AAC without a container (ADTS)");
  ExpectFault("text that is no audio", "no audio that is known; wanted WAV");
  // Cut at any byte: the next frame is named, and a file from there is read.
  const std::string mp3 = Mp3("", 10);
  ExpectFault(mp3.substr(100), "the next frame begins at byte 317");
  EXPECT_TRUE(Read(mp3.substr(417)).ok());
}

TEST(AudioHeaderTest, PassesAReadersErrorOn) {
  const auto header = ReadAudioHeader(
      100, [](uint64_t, uint64_t) -> absl::StatusOr<std::string> {
        return absl::UnavailableError("stale");
      });
  EXPECT_EQ(header.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace ballast
