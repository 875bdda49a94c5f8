// A load's result, for people and for programs.

#ifndef CLIENT_LOAD_REPORT_H_
#define CLIENT_LOAD_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "client/load_run.h"

namespace flash {

// A table, a line for each measure.
std::string LoadTable(const LoadSettings& settings, const LoadResult& result);

// Everything, settings and server included. "schema" counts up when a field
// changes its meaning.
nlohmann::ordered_json LoadJson(const LoadSettings& settings,
                                const LoadResult& result,
                                const v1::ServerInfo& server,
                                const v1::ModelInfo& model);

// Whether the load went as it should have: UNAVAILABLE, with one sentence, if
// requests failed, if a full queue refused more than the part `max_refused` of
// those that ended, or if no token came back.
absl::Status Verdict(const LoadResult& result, double max_refused);

// One line, without its end.
std::string ProgressLine(const LoadProgress& progress);

}  // namespace flash

#endif  // CLIENT_LOAD_REPORT_H_
