"""Each meaning of `words.toml` is said by some names and not by others that look alike."""

from __future__ import annotations

import pytest

from ddp_audit.knowledge.words import meanings, names_class, says, spelled

# By meaning: names that say so, and names that do not.
NAMES = {
    "gradient": ("p.grad allreduce_gradients flatGrads", "graduate upgrade"),
    "of-gradients-number": ("gradient_accumulation_steps grad_norm max_grad_norm", "grad gradients normal_grad"),
    "parameter": ("model.parameters weights p.data state_dict", "part step pdata"),
    "loss": ("loss loss_value lossValue", "closs glossy"),
    "learning-rate": ("base_lr learning_rate learningRate", "lrx rate learning"),
    "norm": ("total_norm normalized", "nor form"),
    "about": ("grad_norm num_tokens found_inf loss_scale", "tensor flat info_tensor"),
    "metric": ("val_loss acc acc1 top1Accuracy f1 mIoU err", "accumulate accelerator account step"),
    "fraction": ("mean_loss mAP rate error", "count rated"),
    "no-result": ("grad stop_flag weights seed", "total correct"),
    "selection": ("mask valid_tokens num_pos fg", "tapestry total size"),
    "size": ("batch_size block_size cfg.seq_len", "batch block size"),
    "handle": ("handle.wait work async_op req", "network require"),
    "evaluation": ("val_loss validate run_eval dev_set test_step", "value interval device"),
    "main-rank": ("rank is_main_process main_process", "main process isMainframe"),
    "group-member": ("is_member dp_group", "grouped remember"),
    "report": ("print logger.info save_image", "step forward"),
    "only-if-missing": ("path.exists use_cache os.path.isfile force", "path open"),
    "out-of-memory": ("OutOfMemoryError out_of_memory CUDA_out_of_memory", "memory out"),
    "training-step": ("train_step optimizer.step backward", "steps trained stepper"),
    "rank": ("rank local_rank ranks", "ran rang"),
    "rank-or-shard": ("world_size shard_id rank split_by_node", "world size node"),
    "number-of-shards": ("world_size num_replicas num_shards", "shard replica"),
    "world": ("world_size", "word"),
    "cuts-iteration": ("itertools.islice", "slice islices"),
    "evens-out": ("drop_last total_size padding cycle", "size last"),
    "pads": ("pad_sequence zero_padding", "path"),
    "limit": ("clip_grad clamp max_norm", "max norm limit"),
    "buffers": ("named_buffers buffers", "buffer"),
    "function-that-draws": ("torch.rand random.sample np_rand", "rand_like samples random"),
    "draws": ("random shuffle torch.randn normal_ rng", "range normalize uniformly"),
    "seeds": ("manual_seed seed_everything set_deterministic", "set see"),
    "chooses-device": ("device use_cuda backend gpu", "dev use"),
    "shares-between-ranks": ("all_reduce gather_list synchronize", "sync share"),
    "settles": ("broadcast sync recv", "send share"),
    "shares-parameters": ("broadcast all_reduce allreduce_params sync_params", "reduce gather"),
    "no-sync": ("model.no_sync() maybe_no_sync", "sync no"),
    "reduces": ("all_reduce reduce_dict", "gather sync"),
    "batch": ("batch minibatch batch_size", "bat"),
    "batch-size": ("batch_size per_device_batch batchsize", "batch_idx batches"),
    "global": ("global_batch total_batch effective_batch", "local batch"),
    "tokens-of-update": ("tokens_per_step tokens_per_update", "tokens step"),
    "batches": ("num_batches batches", "batch"),
    "accumulation": ("grad_accum accumulation_steps", "acc steps"),
    "no-training": ("val_batch eval_size test", "train batch"),
    "no-total": ("num_samples epoch avg_batch len(x)", "batch total"),
    "of-all-processes": ("total_batch_size the_global_batch over_all_gpus", "gpus all"),
    "of-one-process": ("batch_size_per_gpu micro_batch each_rank", "per batch"),
    "processes": ("num_gpus world_size rank nodes", "batch count"),
    "job-of-several": ("args.distributed use_ddp cfg.is_distributed", "distribute ddp_bucket distributed_port"),
    "number-of-processes": ("world_size numGPUs ngpus num_of_gpus n_gpu", "num_batches gpu_batch"),
    "device-count": ("torch.cuda.device_count", "devices count"),
    "number-of-rows": ("num_rows total_size len_data", "rows index"),
    "row-number": ("image_id imageId sample_id", "id image valid"),
    "row-key": ("id idx image_id uid", "identity video width"),
    "tells-rows-apart": ("gather_for_metrics dedup unique total_size", "gather metrics size"),
    "of-one-rank": ("rank0 worker_3 pid hostname tmp_dir", "processed preprocess output"),
    "model-state": ("model state_dict net encoder", "magnetic epoch"),
    "optimizer-state": ("optimizer optim opt opt_d", "option adopt"),
    "random-state": ("rng_state sampler data_position", "state update"),
    "epoch": ("epoch start_epoch", "step"),
    "one-goes-first": ("torch_distributed_zero_first local_process_first FileLock", "first zero lock"),
    "gives-timeout": ("InitProcessGroupKwargs ddp_timeout", "timeout process_group"),
    "local-rank-elsewhere": ("SLURM_LOCALID get_node_local_rank", "local_rank rank"),
    "splits-stream": ("split_dataset_by_node sharding_filter", "split dataset"),
    "fixes-batchnorm": ("SyncBatchNorm convert_sync_batchnorm syncbn freeze_bn", "BatchNorm2d bn"),
    "shares-buffers": ("broadcast_buffers sync_buffers", "buffers broadcast"),
    "scales-gradients": ("register_comm_hook torch._foreach_div_", "register_hook div"),
    "named-rank": ("rank global_rank RANK", "ranks rank0 local_rank"),
    "named-local_rank": ("local_rank localRank localrank", "rank local_ranks my_local_rank"),
    "named-node_rank": ("node_rank machine_rank", "node rank"),
    "named-world_size": ("world_size num_processes WORLD_SIZE", "world_sizes local_world_size"),
    "named-local_world_size": ("local_world_size", "world_size"),
    "named-main-process": ("is_main_process isRank0 is_rank_0 _is_master", "is_mainframe main not_is_main_process"),
    "local": ("local_rank isLocalMain", "locals locale"),
    "gives-rank": ("get_rank get_local_rank", "get_rank_list forget_rank"),
    "runs-on-main": ("rank_zero_only main_process_only", "rank_zero main_process_first"),
    "gives-batches": ("train_loader make_loader(args) DataLoader data_iter batches", "rows load batch"),
    "number-of-passes": ("len(loader) num_batches steps_per_epoch total_updates", "length batches steps"),
    "optimizer": ("optimizer_d self.opt opt2", "option adopt"),
    "scheduler": ("lr_scheduler sched", "scheme"),
    "scaler": ("grad_scaler", "scale"),
    "best-so-far": ("best_loss min_loss lowest early_stop", "minutes minimum estimate"),
    "limits-passes": ("max_steps maxIters", "max steps"),
    "counts-ranks": ("world_size ngpus num_replicas nprocs", "world num_rows n_rows"),
    "counter": ("global_step num_batches args.log_interval epoch lr", "step_size epochal stepper"),
    "measure": ("loss_step train_acc total_time", "step epoch"),
    "texts": ("field_names param_key task", "ids values"),
    "numbers": ("rank_id sample_ids num_classes", "text value"),
    "node": ("node nodes", "index"),
    "process": ("process processes", "prose"),
    "might-communicate": ("all_gather sync_stats xm.all_to_all bcast", "send print"),
    "makes-equal": ("reduce_dict all_gather bcast synchronize", "reducer gatherer asynchron"),
    "collectives": ("all_reduce dist.broadcast barrier all_to_all_single", "broadcast_buffers reduce gather"),
    "makes-buffers-equal": ("all_gather reduce allreduce broadcast_", "scatter_ reducer"),
    "waits": ("wait_all torch.cuda.synchronize drain", "launch start"),
    "main-goes-first": ("torch_distributed_zero_first main_process_first rank0_first", "first_rank main_process"),
    "long-work": ("build_vocab preprocess_data_v2 download download_corpus", "tokenize predownload build downloads"),
    "advises-against": ("do_not_set don't_use unset avoid", "set use"),
    "diagnosis": ("hangs deadlock debugging RTX_4090 https", "train tissue"),
}


@pytest.mark.parametrize("meaning", sorted(meanings()))
def test_a_meaning_is_said_by_these_and_not_by_those(meaning: str) -> None:
    yes, no = NAMES[meaning]
    assert [name for name in yes.split() if not says(name, meaning)] == []
    assert [name for name in no.split() if says(name, meaning)] == []


def test_an_entry_may_be_bound_to_the_beginning_and_the_end() -> None:
    assert says("rank", "named-rank") and not says("rank_of", "named-rank") and not says("my_rank", "named-rank")


@pytest.mark.parametrize(
    ("name", "is_one"), [("Tokenizer", True), ("_Cache", True), ("DEVICE", False), ("make", False), ("", False), ("A", False)]
)
def test_classes_are_known_by_how_they_are_written(name: str, is_one: bool) -> None:
    assert names_class(name) is is_one


def test_names_are_read_as_their_words() -> None:
    assert spelled("numValid_tokens") == "_num_valid_tokens_" == spelled("NumValidTokens")
    assert spelled("numGPUs") == "_num_gpus_" and spelled("DDPModel") == "_ddp_model_" and spelled("p.grad") == "_p_grad_"
    assert spelled("") == "__"


def test_only_meanings_that_are_known_have_examples() -> None:
    assert set(NAMES) == set(meanings())
