"""Makes short videos and packs them with what FFmpeg decodes of them, for
device_video_gpu_test: a machine with a GPU need not have FFmpeg.

    python3 tests/gpu/video_clips.py OUT [--only PREFIX]

Needs the program ffmpeg, and a Python with av, numpy and Pillow. OUT holds, in this
order: the length of a JSON text in 8 bytes, the lowest first; that text; the packets.
The text is a list of clips:

    name, codec, width, height   as FFmpeg says
    format                       of pixels, FFmpeg's name
    space, range                 FFmpeg's numbers of the matrix and of the range
    interlaced                   whether FFmpeg calls a frame so
    offset, packets              of the first packet; the lengths of all, in the order of
                                 decoding
    keys                         packets that decoding can begin with; of H.264 those with
                                 IDR pictures
    damage                       missing if the packets were not damaged: how; the clip that
                                 was damaged; its packet that is lost or another; the other's
                                 length, at `offset`; -1: lost
    complaints                   what FFmpeg said of the packets, as a count: by default,
                                 and with every check of its own
    frames                       in the order of presentation, [packet, SHA-256 of the
                                 samples]: rows of luma, then rows of chroma in pairs
    resized                      [packet, width, height, SHA-256]: the frame in RGB as PyAV
                                 converts it, resized by Pillow
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import tempfile

import av
import numpy
from PIL import Image

# Filters of Annex B, which engines read.
ANNEX_B = {"h264": "h264_mp4toannexb", "hevc": "hevc_mp4toannexb"}
CHECKS = "crccheck+bitstream+buffer+explode+careful+compliant+aggressive"
SIZES = ["176x144", "322x242", "350x190", "256x256", "480x270"]
SMALL = ["64x48", "128x272", "190x110"]  # below what engines take of HEVC and VP9
SOURCES = [  # pictures that move
    "testsrc2=size=%s:rate=30",
    "mandelbrot=size=%s:rate=30",
    "life=size=%s:rate=30:mold=10:death_color=#c83232:life_color=#00ff00:seed=7",
    "cellauto=size=%s:rate=30:scroll=1:seed=3",
    "testsrc=size=%s:rate=30",
]
COLOURS = ["bt709", "smpte170m", "bt470bg", "smpte240m", "bt2020nc", "fcc"]


def x264(more="", **options):
    options.setdefault("g", 12)
    options.setdefault("bf", 2)
    flags = " ".join("-%s %s" % pair for pair in options.items())
    return "-c:v libx264 -pix_fmt yuv420p %s -x264-params threads=1:%s" % (flags, more)


def x265(more="", pixels="yuv420p", **options):
    flags = " ".join("-%s %s" % pair for pair in options.items())
    return "-c:v libx265 -pix_fmt %s %s -x265-params log-level=none:pools=1:keyint=12:%s" % (
        pixels,
        flags,
        more,
    )


def vp9(more="", pixels="yuv420p"):
    return "-c:v libvpx-vp9 -pix_fmt %s -deadline good -cpu-used 5 -g 12 -b:v 400k %s" % (
        pixels,
        more,
    )


def recipes():
    """Yields name, source, size, arguments and what else is done to the file."""
    turn = 0

    def recipe(name, arguments, size=None, filters="", after=None):
        nonlocal turn
        turn += 1
        sizes = SIZES + SMALL if name.startswith("h264") else SIZES
        return (
            name,
            SOURCES[turn % len(SOURCES)],
            size or sizes[turn // len(SOURCES) % len(sizes)],
            arguments,
            filters,
            after,
        )

    for profile in ("baseline", "main", "high"):
        for bf in (0, 1, 3) if profile != "baseline" else (0,):
            for refs in (1, 4):
                yield recipe(
                    "h264-%s-b%d-r%d.mp4" % (profile, bf, refs),
                    x264("ref=%d" % refs, bf=bf, **{"profile:v": profile}),
                )
    for pyramid in ("none", "strict", "normal"):
        for g in (1, 8, 250):
            yield recipe(
                "h264-pyramid-%s-g%d.mkv" % (pyramid, g),
                x264("b-pyramid=%s" % pyramid, bf=4, g=g),
            )
    for name in (
        "open-gop=1",
        "weightp=0",
        "weightp=2",
        "cabac=0",
        "8x8dct=0",
        "8x8dct=1",
        "constrained-intra=1",
        "slices=4",
        "slice-max-size=300",
        "interlaced=1",
        "bff=1",
        "fake-interlaced=1",
        "intra-refresh=1",
        "ref=16",
        "no-deblock=1",
        "deblock=-3,-3",
        "direct=temporal",
        "direct=spatial",
        "qp=4",
        "qp=50",
        "aud=1",
        "bluray-compat=1",
        "stitchable=1",
        "me=esa:subme=9:trellis=2",
        "partitions=all:subme=7",
        "cqm=jvt",
        "nal-hrd=vbr:vbv-maxrate=300:vbv-bufsize=300",
        "weightb=1:bframes=5:b-adapt=0",
        "scenecut=0:min-keyint=1",
        "opencl=0:tff=1:bframes=3:b-pyramid=normal",
    ):
        slug = "".join(c if c.isalnum() else "-" for c in name)[:40]
        fields = "interlaced" in name or "ff=1" in name  # lines in fours
        yield recipe("h264-%s.mp4" % slug, x264(name), size="352x288" if fields else None)
    for size in ("16x16", "18x18", "34x50", "66x18", "146x98", "642x362", "1280x720", "1920x1080"):
        yield recipe("h264-%s.mp4" % size, x264("crop-rect=0,0,0,0"), size=size)
    for crop in ("4,2,6,8", "0,0,30,14", "16,16,16,16"):
        slug = crop.replace(",", "-")
        yield recipe("h264-crop-%s.mp4" % slug, x264("crop-rect=" + crop))
    for colours in COLOURS:
        for full in ("tv", "pc"):
            yield recipe(
                "h264-%s-%s.mp4" % (colours, full),
                x264() + " -colorspace %s -color_range %s" % (colours, full),
                filters="scale=out_range=%s" % full,
            )
    yield recipe("h264-yuvj.mp4", x264().replace("yuv420p", "yuvj420p"))
    for container in ("mkv", "ts", "avi", "mov", "flv"):
        yield recipe(
            "h264-in-%s.%s" % (container, container), x264(bf=0 if container == "avi" else 2)
        )
    yield recipe("h264-fragments.mp4", x264() + " -movflags frag_keyframe+empty_moov")
    yield recipe("h264-bare.h264", x264())
    for rate in ("mod(n\\,3)", "not(mod(n\\,2))+gt(n\\,20)", "lt(random(1)\\,0.6)"):
        slug = "".join(c for c in rate if c.isalnum())
        yield recipe("h264-vfr-%s.mp4" % slug, x264() + " -vsync vfr", filters="select='%s'" % rate)
        yield recipe("hevc-vfr-%s.mp4" % slug, x265() + " -vsync vfr", filters="select='%s'" % rate)
    for start in ("0.2", "0.45", "0.63"):
        after = "-ss %s -i {} -c copy -avoid_negative_ts disabled" % start
        yield recipe("h264-edits-%s.mp4" % start, x264(bf=3), after=after)
        yield recipe("hevc-edits-%s.mp4" % start, x265(), after=after)
    yield recipe("h264-444.mp4", x264().replace("yuv420p", "yuv444p"))
    yield recipe("h264-422.mp4", x264().replace("yuv420p", "yuv422p"))
    yield recipe("h264-10.mp4", x264().replace("yuv420p", "yuv420p10le"))
    yield recipe("h264-lossless.mp4", x264("qp=0"))
    yield recipe("h264-grey.mp4", x264().replace("yuv420p", "gray"))

    for name in (
        "bframes=0",
        "bframes=2",
        "bframes=8:b-adapt=2",
        "b-pyramid=0",
        "open-gop=0",
        "open-gop=1",
        "ref=1",
        "ref=6",
        "ctu=16",
        "ctu=32:min-cu-size=8",
        "ctu=64:max-tu-size=16",
        "wpp=1",
        "slices=3",
        "lossless=1",
        "cu-lossless=1",
        "amp=1:rect=1",
        "no-sao=1",
        "no-deblock=1",
        "strong-intra-smoothing=0",
        "weightp=1:weightb=1",
        "tskip=1",
        "sign-hide=0",
        "repeat-headers=1",
        "aud=1",
        "constrained-intra=1",
        "temporal-layers=3",
        "qp=5",
        "qp=48",
        "interlace=tff",
        "intra-refresh=1",
        "keyint=1",
        "scaling-list=default",
        "idr-recovery-sei=1",
        "radl=2:open-gop=0",
    ):
        slug = "".join(c if c.isalnum() else "-" for c in name)[:40]
        yield recipe("hevc-%s.mp4" % slug, x265(name))
    for size in ("64x64", "66x130", "146x98", "642x362", "1280x720", "1922x1082"):
        yield recipe("hevc-%s.mp4" % size, x265(), size=size)
    for colours in COLOURS[:5]:
        for full in ("tv", "pc"):
            yield recipe(
                "hevc-%s-%s.mp4" % (colours, full),
                x265("colormatrix=%s:range=%s" % (colours, "full" if full == "pc" else "limited")),
                filters="scale=out_range=%s" % full,
            )
    for container in ("mkv", "ts", "mov"):
        yield recipe("hevc-in-%s.%s" % (container, container), x265())
    yield recipe("hevc-10.mp4", x265(pixels="yuv420p10le"))
    yield recipe("hevc-444.mp4", x265(pixels="yuv444p"))

    for name, more in {
        "plain": "",
        "altref": "-auto-alt-ref 1 -lag-in-frames 12",
        "altref6": "-auto-alt-ref 6 -lag-in-frames 16",
        "no-altref": "-auto-alt-ref 0",
        "lossless": "-lossless 1",
        "tiles": "-tile-columns 2 -tile-rows 1",
        "parallel": "-frame-parallel 1 -error-resilient 1",
        "low": "-b:v 40k",
        "high": "-crf 4 -b:v 0",
        "aq": "-aq-mode 2",
        "realtime": "-deadline realtime -cpu-used 8",
        "sharp": "-sharpness 7",
        "g1": "-g 1",
        "g250": "-g 250",
        "row": "-row-mt 1",
        "static": "-static-thresh 1000",
    }.items():
        yield recipe("vp9-%s.webm" % name, vp9(more))
    for size in ("161x121", "64x64", "65x33", "1280x720", "321x180", "180x321"):
        even = "x".join(str(int(s) + int(s) % 2) for s in size.split("x"))
        yield recipe(
            "vp9-%s.webm" % size,
            vp9(),
            size=even,
            filters="crop=%s:%s:0:0:exact=1" % tuple(size.split("x")),
        )
    for colours in COLOURS[:5]:
        for full in ("tv", "pc"):
            yield recipe(
                "vp9-%s-%s.webm" % (colours, full),
                vp9("-colorspace %s -color_range %s" % (colours, full)),
                filters="scale=out_range=%s" % full,
            )
    yield recipe("vp9-in-mp4.mp4", vp9())
    yield recipe("vp9-10.webm", vp9("-profile:v 2", pixels="yuv420p10le"))
    yield recipe("vp9-444.webm", vp9("-profile:v 1", pixels="yuv444p"))

    for name, more in {
        "svt": "-c:v libsvtav1 -preset 10 -g 12",
        "svt-g250": "-c:v libsvtav1 -preset 10 -g 250",
        "svt-low": "-c:v libsvtav1 -preset 10 -g 12 -crf 60",
        "svt-high": "-c:v libsvtav1 -preset 8 -g 12 -crf 8",
        "svt-grain": "-c:v libsvtav1 -preset 10 -g 12 -svtav1-params film-grain=20",
        "svt-screen": "-c:v libsvtav1 -preset 10 -g 12 -svtav1-params scm=1",
        "svt-tiles": "-c:v libsvtav1 -preset 10 -g 12 -svtav1-params tile-columns=1:tile-rows=1",
        "aom": "-c:v libaom-av1 -cpu-used 8 -g 12 -b:v 300k",
        "aom-g1": "-c:v libaom-av1 -cpu-used 8 -g 1 -b:v 900k",
        "aom-lossless": "-c:v libaom-av1 -cpu-used 8 -g 12 -aom-params lossless=1",
        "aom-superres": "-c:v libaom-av1 -cpu-used 8 -g 12 -aom-params superres-mode=1:superres-denominator=12",
        "aom-realtime": "-c:v libaom-av1 -usage realtime -cpu-used 8 -g 12 -b:v 300k",
        "aom-screen": "-c:v libaom-av1 -cpu-used 8 -g 12 -aom-params tune-content=screen",
    }.items():
        yield recipe("av1-%s.mp4" % name, more + " -pix_fmt yuv420p")
    for size in ("161x121", "64x64", "130x66", "1280x720"):
        even = "x".join(str(int(s) + int(s) % 2) for s in size.split("x"))
        yield recipe(
            "av1-%s.mkv" % size,
            "-c:v libaom-av1 -cpu-used 8 -g 12 -b:v 300k -pix_fmt yuv420p",
            size=even,
            filters="crop=%s:%s:0:0:exact=1" % tuple(size.split("x")),
        )
    yield recipe("av1-10.mp4", "-c:v libsvtav1 -preset 10 -g 12 -pix_fmt yuv420p10le")

    for name, more in {
        "plain": "",
        "altref": "-auto-alt-ref 1 -lag-in-frames 10",
        "slices": "-slices 4",
        "low": "-b:v 30k",
    }.items():
        yield recipe(
            "vp8-%s.webm" % name,
            "-c:v libvpx -pix_fmt yuv420p -deadline good -cpu-used 5 -g 12 -b:v 400k " + more,
        )
    yield recipe("mpeg2-plain.ts", "-c:v mpeg2video -g 12 -bf 2 -b:v 800k")
    yield recipe("mpeg2-field.ts", "-c:v mpeg2video -g 12 -bf 2 -b:v 800k -flags +ildct+ilme")
    yield recipe("mpeg4-plain.mp4", "-c:v mpeg4 -g 12 -bf 2 -q 5")
    yield recipe("mpeg4-qpel.avi", "-c:v mpeg4 -g 12 -q 5 -flags +qpel+mv4")


def make(folder, recipe):
    name, source, size, arguments, filters, after = recipe
    path = os.path.join(folder, name)
    first = os.path.join(folder, "first-" + name) if after else path

    def run(words):
        command = ["ffmpeg", "-nostdin", "-loglevel", "error", "-y", *words]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)

    large = int(size.split("x")[0]) >= 640
    frames = "12" if large else "26"
    filters = (filters + "," if filters else "") + "format=yuv420p"
    if "yuv420p" not in arguments and "-pix_fmt" in arguments:
        filters = filters.rsplit("format=", 1)[0].rstrip(",")
    words = ["-f", "lavfi", "-i", source % size, "-frames:v", frames, "-threads", "1"]
    if filters:
        words += ["-vf", filters]
    run(words + arguments.split() + [first])
    if after:
        run(after.format(first).split() + [path])
    return path


def samples(frame):
    """Rows of luma, then rows of chroma in pairs, as an engine writes them."""
    wide = 2 if "10" in frame.format.name or "12" in frame.format.name else 1
    planes = []
    for plane in frame.planes:
        rows = numpy.frombuffer(plane, "uint8").reshape(plane.height, plane.line_size)
        planes.append(
            numpy.ascontiguousarray(rows[:, : plane.width * wide]).view("uint%d" % (8 * wide))
        )
    parts = [planes[0].tobytes()]
    if len(planes) == 3:
        parts.append(numpy.stack(planes[1:], -1).tobytes())
    return b"".join(parts)


def decoder_of(stream, extradata, checks):
    context = av.CodecContext.create(stream.codec_context.codec.name, "r")
    context.extradata = extradata
    context.thread_count = 1
    if checks:
        context.options = {"err_detect": CHECKS}
    return context


def decode(stream, extradata, packets, checks=False):
    """Returns frames by packet, in the order of their packets, and complaints."""
    context = decoder_of(stream, extradata, checks)
    frames = {}
    complaints = 0
    with av.logging.Capture(local=True) as said:
        for number, data in enumerate([*packets, None]):
            packet = None
            if data is not None:
                packet = av.Packet(data)
                packet.pts = packet.dts = number
            try:
                for frame in context.decode(packet):
                    frames[frame.pts] = frame
                    complaints += frame.is_corrupt
            except (av.error.FFmpegError, ValueError):
                complaints += 1
    complaints += sum(level <= av.logging.WARNING for level, _, _ in said)
    return frames, complaints


def damaged(packets, kind, chance):
    """Returns the number of a packet and what it becomes; None: it is lost."""
    at = chance.randrange(1, len(packets)) if len(packets) > 1 else 0
    data = bytearray(packets[at])
    if kind == "bits":
        for _ in range(chance.choice((1, 1, 2, 5))):
            where = chance.randrange(min(8, len(data) - 1), len(data))
            data[where] ^= 1 << chance.randrange(8)
    elif kind == "zeros":
        where = chance.randrange(min(8, len(data) - 1), len(data))
        data[where : where + 16] = bytes(len(data[where : where + 16]))
    elif kind == "cut":
        del data[chance.randrange(min(8, len(data) - 1), len(data)) :]
    return at, None if kind == "lost" else bytes(data)


def describe(name, stream, packets, keys, frames, complaints, damage=None):
    one = next(iter(frames.values()), None)
    clip = {
        "name": name,
        "codec": stream.codec_context.codec.canonical_name,
        "width": one.width if one else stream.codec_context.width,
        "height": one.height if one else stream.codec_context.height,
        "format": one.format.name if one else "",
        "space": int(one.colorspace) if one else 2,
        "range": int(one.color_range) if one else 0,
        "packets": [len(p) for p in packets],
        "interlaced": any(frame.interlaced_frame for frame in frames.values()),
        "keys": keys,
        "complaints": complaints,
        "frames": [],
        "resized": [],
    }
    if damage:
        clip["damage"] = damage
        del clip["packets"]
    for number in frames:
        digest = hashlib.sha256(samples(frames[number])).hexdigest()
        clip["frames"].append([number, digest])
    for i, number in enumerate(sorted(frames)):
        if damage or i not in (0, len(frames) // 2, len(frames) - 1):
            continue
        width, height = ((56, 84), (140, 112), (448, 28))[len(clip["resized"])]
        pixels = Image.fromarray(frames[number].to_ndarray(format="rgb24"))
        pixels = pixels.resize((width, height), Image.Resampling.BICUBIC)
        digest = hashlib.sha256(pixels.tobytes()).hexdigest()
        clip["resized"].append([number, width, height, digest])
    return clip


def begins(name, packet):
    """Whether decoding can begin with a packet."""
    if name != "h264":
        return packet.is_keyframe
    data = bytes(packet)
    at = data.find(b"\0\0\1")
    while at >= 0 and at + 3 < len(data):
        if data[at + 3] & 31 == 5:
            return True
        at = data.find(b"\0\0\1", at + 3)
    return False


def read(path):
    container = av.open(path)
    stream = container.streams.video[0]
    name = stream.codec_context.codec.canonical_name
    change = av.BitStreamFilterContext(ANNEX_B[name], stream) if name in ANNEX_B else None
    packets = []
    keys = []
    for packet in container.demux(stream):
        for changed in change.filter(packet if packet.size else None) if change else [packet]:
            if not changed.size:
                continue
            if begins(name, changed):
                keys.append(len(packets))
            packets.append(bytes(changed))
    return container, stream, packets, keys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=int, default=1 << 30)
    arguments = parser.parse_args()
    av.logging.set_level(av.logging.WARNING)
    chance = random.Random(67)
    clips, blobs, offset = [], [], 0

    def add(clip, packets):
        nonlocal offset
        clip["offset"] = offset
        blob = b"".join(packets)
        offset += len(blob)
        blobs.append(blob)
        clips.append(clip)

    with tempfile.TemporaryDirectory() as folder:
        for recipe in recipes():
            name = recipe[0]
            if not name.startswith(arguments.only) or len(clips) >= arguments.limit:
                continue
            try:
                container, stream, packets, keys = read(make(folder, recipe))
            except (subprocess.CalledProcessError, av.error.FFmpegError) as error:
                print("NOT MADE %s: %s" % (name, error), flush=True)
                continue
            print(name, flush=True)
            # Annex B has it in the packets, and must not get it in another form.
            annex_b = stream.codec_context.codec.canonical_name in ANNEX_B
            extradata = None if annex_b else stream.codec_context.extradata
            frames, said = decode(stream, extradata, packets)
            checked, said_more = decode(stream, extradata, packets, checks=True)
            clip = describe(name, stream, packets, keys, frames, [said, said_more])
            add(clip, packets)
            base = len(clips) - 1
            for kind in ("bits", "zeros", "cut", "lost"):
                if clip["width"] > 500 or clip["format"] not in ("yuv420p", "yuvj420p"):
                    continue
                at, other = damaged(packets, kind, chance)
                bad = packets[:at] + ([other] if other is not None else []) + packets[at + 1 :]
                frames, said = decode(stream, extradata, bad)
                checked, said_more = decode(stream, extradata, bad, checks=True)
                if frames:
                    how = [kind, base, at, -1 if other is None else len(other)]
                    clip = describe(name, stream, bad, keys, frames, [said, said_more], how)
                    add(clip, [other or b""])
            container.close()
    text = json.dumps(clips).encode()
    with open(arguments.out, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for blob in blobs:
            out.write(blob)
    whole = sum("damage" not in clip for clip in clips)
    print(
        "%d clips, %d damaged copies, %d bytes"
        % (whole, len(clips) - whole, 8 + len(text) + offset)
    )


if __name__ == "__main__":
    main()
