#ifndef BALLAST_SERVER_COMMAND_PREVIEW_PREVIEW_PAGES_H_
#define BALLAST_SERVER_COMMAND_PREVIEW_PREVIEW_PAGES_H_

#include "server/command/preview/sample_view.h"
#include "server/http/http_server.h"
#include "server/job/job_setup.h"

namespace ballast {

// The preview's pages by path, for this machine only:
//   /                                                   the page
//   /api/job                                            JobJson
//   /api/sample?split=train&position=17                 ViewJson
//   /api/find?split=train&source=docs&sample=5          {"position": n}
//   /api/search?split=train&name=000123                 {"matches": [{source,
//                          sample, name}], "looked_at": n, "complete": bool}
//   /api/rank?split=train&module=vision&rank=0&step=3&micro_batch=0
//                          {"reads": [positions], "trains_on": [positions]}
//   /api/crop?split=train&position=17&crop=0            a PNG file
//   /api/image?split=train&position=17&image=0          the file as stored
//   /api/crops?split=train&position=17&image=0          a PNG file: DrawCropsOn
// Data that cannot be had are {"error": why} with status 400 (a parameter is
// missing or wrong), 404 (no such sample), 504 (not found in 20 s) or 500.
// Keeps the pictures of the last 4 samples. `job` and `viewer` must outlive the
// handler, which is thread-safe.
HttpServer::Handler MakePreviewPages(const OpenedJob* job,
                                     const SampleViewer* viewer);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_PREVIEW_PREVIEW_PAGES_H_
