// Saves a Checkpoint in the native format, in the plainest way.
#ifndef MUONSTORE_TESTS_NATIVE_SAVE_H_
#define MUONSTORE_TESTS_NATIVE_SAVE_H_

#include <memory>
#include <string>

#include "formats/native/sink.h"
#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"
#include "muonstore/file_system.h"
#include "muonstore/partitioning.h"

namespace muonstore::native {

// The source's trainable parameters in its order, cut by `rule`.
TargetLayout LayoutOf(const Checkpoint& source, const ZeroRule& rule);

// Writes one file of a sink.
void FillFile(CheckpointSink& sink, size_t file, const Checkpoint& source,
              size_t piece_bytes = 1 << 20);

// Writes every file of a sink, in pieces of `piece_bytes`.
void Fill(CheckpointSink& sink, const Checkpoint& source,
          size_t piece_bytes = 1 << 20);

// Root, sink, fill, commit. Returns the tag's folder.
std::string Save(std::shared_ptr<FileSystem> fs, const std::string& root,
                 const SinkOptions& options, const Checkpoint& source,
                 const TargetLayout& layout);

// The save id in a tag's file names.
std::string SaveIdIn(const std::string& directory);

}  // namespace muonstore::native

#endif  // MUONSTORE_TESTS_NATIVE_SAVE_H_
