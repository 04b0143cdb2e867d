// write_live_save FOLDER: two ranks save a store under FOLDER/root; what it
// held goes to FOLDER/expected.txt, a line "<kind>/<name> <dtype> <file>" a
// tensor, for a reader that is another program.
#include <cstdio>
#include <fstream>
#include <string>

#include "muonstore/save.h"
#include "tests/checkpoint/live_run.h"
#include "tests/testutil/run_ranks.h"

namespace muonstore {
namespace {

void WriteExpected(testutil::LiveRun& run, const std::string& folder,
                   bool writes) {
  std::ofstream lines;
  if (writes) lines.open(folder + "/expected.txt");
  int number = 0;
  for (const ParameterSpec& spec : run.store().parameters()) {
    for (const StateKind& kind :
         run.store().kinds(run.store().FindParameter(spec.name))) {
      if (kind == kGradient || kind == kWeight) continue;
      const GatheredTensor tensor = run.store().Gather(spec.name, kind);
      if (!writes) continue;
      const std::string file = "t" + std::to_string(number++) + ".bin";
      std::ofstream(folder + "/" + file, std::ios::binary)
          .write(reinterpret_cast<const char*>(tensor.data.data()),
                 static_cast<std::streamsize>(tensor.data.size()));
      lines << kind << "/" << spec.name << " " << spec.shape.ToString() << "\t"
            << file << "\n";
    }
  }
}

// The exit code.
int Run(const std::string& folder) {
  const std::string rendezvous = testutil::UniqueRendezvous();
  const auto outcomes = testutil::TryRunRanks(2, [&](int32_t rank) {
    testutil::LiveRun run(
        ConnectSharedMemory(
            {.rank = rank, .size = 2, .rendezvous = rendezvous}),
        {.stage = 2});
    run.Steps(0, 3);
    Saver saver(run.store(), folder + "/root");
    saver.Save("t", {.asynchronous = true}).Wait();
    saver.Close();
    WriteExpected(run, folder, rank == 0);
    run.Close();
  });
  for (const auto& outcome : outcomes) {
    if (outcome.ok()) continue;
    std::fprintf(stderr, "%s\n", outcome.failures.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace muonstore

int main(int argc, char** argv) {
  return argc == 2 ? muonstore::Run(argv[1]) : 2;
}
