"""Defects by which a crash, lost power or damage would cost a file, or a wrong file would be loaded."""

from reliability.defects.defect import Defect

_DURABLE, _MANIFESTS, _RUN = "runtime/files.py", "runtime/manifest.py", "training/run_folder.py"
_OF_FILES = "runtime/test_durable_files.py::"
_ON_DISK = _OF_FILES + "test_everything_is_on_the_disk_before_the_name_appears"
_FILE_ON_DISK = _OF_FILES + "test_a_file_is_on_the_disk_before_its_name_and_its_name_at_the_end"

FILES = (
    Defect(
        name="a manifest is believed without hashing the files",
        file=_MANIFESTS,
        old='if file_hash(file) != entry["sha256"]:',
        new="if False:",
        tests=(_OF_FILES + "test_a_flipped_bit_in_any_byte_is_refused",),
    ),
    Defect(
        name="a manifest is not checked against its own hash",
        file=_MANIFESTS,
        old="if not shaped or data != manifest_bytes(files):",
        new="if not shaped:",
        tests=(_OF_FILES + "test_an_edited_manifest_is_refused",),
    ),
    Defect(
        name="a file that no manifest lists is let through",
        file=_MANIFESTS,
        old='raise DamagedData(path / name, f"is not listed in {MANIFEST_NAME}")',
        new="continue",
        tests=(_OF_FILES + "test_an_extra_file_is_named",),
    ),
    Defect(
        name="a single file is renamed before it is flushed",
        file=_DURABLE,
        old="                _sync_file(temporary)\n                os.replace(temporary, path)\n",
        new="                os.replace(temporary, path)\n",
        tests=(_FILE_ON_DISK,),
    ),
    Defect(
        name="the name of a single file is not flushed",
        file=_DURABLE,
        old="                os.replace(temporary, path)\n                _sync_directory(path.parent)\n",
        new="                os.replace(temporary, path)\n",
        tests=(_FILE_ON_DISK,),
    ),
    Defect(
        name="the files of a directory are not flushed",
        file=_DURABLE,
        old="            _sync_file(directory / name)\n",
        new="            pass\n",
        tests=(_ON_DISK,),
    ),
    Defect(
        name="the manifest is not flushed",
        file=_DURABLE,
        old="    _sync_file(manifest)\n",
        new="",
        tests=(_ON_DISK,),
    ),
    Defect(
        name="the names in a directory are not flushed",
        file=_DURABLE,
        old="        _sync_directory(Path(folder))\n",
        new="        pass\n",
        tests=(_ON_DISK,),
    ),
    Defect(
        name="the name of a new directory is not flushed",
        file=_DURABLE,
        old="    else:\n        os.rename(temporary, path)\n        _sync_directory(path.parent)\n",
        new="    else:\n        os.rename(temporary, path)\n",
        tests=(_ON_DISK,),
    ),
    Defect(
        name="the names of new parents are not flushed",
        file=_DURABLE,
        old="        _sync_directory(made.parent)\n",
        new="        pass\n",
        tests=(_OF_FILES + "test_the_parents_that_are_made_are_on_the_disk_before_what_they_hold",),
    ),
    Defect(
        name="a directory that takes another one's place is not flushed",
        file=_DURABLE,
        old="        try:\n            _sync_directory(path.parent)\n",
        new="        try:\n            pass\n",
        tests=(_OF_FILES + "test_an_old_directory_goes_when_the_new_one_s_name_is_on_the_disk",),
    ),
    Defect(
        name="a name is not gone for good before its files go",
        file=_DURABLE,
        old="        _sync_directory(path.parent)  # or its files",
        new="        # or its files",
        tests=(_OF_FILES + "test_a_removed_directory_s_name_is_gone_for_good_before_its_files",),
    ),
    Defect(
        name="a directory is renamed before its manifest is written",
        file=_DURABLE,
        old="                _write_manifest(temporary, known or {})\n"
        "                _put_in_place(temporary, names.old, path, replace)\n",
        new="                _put_in_place(temporary, names.old, path, replace)\n"
        "                _write_manifest(path, known or {})\n",
        tests=(_OF_FILES + "test_everything_is_on_the_disk_before_the_name_appears",),
    ),
    Defect(
        name="an old directory goes before the new one stands in its place",
        file=_DURABLE,
        old="        os.rename(path, old)\n        try:\n",
        new="        _remove(path)\n        try:\n",
        tests=(_OF_FILES + "test_a_disk_that_fills_up_at_any_call_leaves_what_was_there",),
    ),
    Defect(
        name="the temporary files of the living are removed",
        file=_DURABLE,
        old="            elif lock := lock_file(names.lock_path):\n",
        new="            elif (lock := lock_file(names.lock_path)) or not names.remove():\n",
        tests=(_OF_FILES + "test_the_next_writer_removes_what_the_dead_left_and_nothing_of_the_living",),
    ),
    Defect(
        name="two threads of a process may both have a lock",
        file="runtime/files.py",
        old="            if _identity(path) in _held:\n                return None\n",
        new="",
        tests=("runtime/test_file_locks.py::test_two_threads_of_a_process_do_not_both_get_a_lock",),
    ),
    Defect(
        name="a lock on a file that was removed meanwhile counts",
        file="runtime/files.py",
        old="                if _identity(path) == identity:\n",
        new="                if True:\n",
        tests=("runtime/test_file_locks.py::test_a_file_that_its_owner_removed_meanwhile_is_not_a_lock",),
    ),
    Defect(
        name="a directory is finished although a file of it was removed",
        file=_DURABLE,
        old="    for name in sorted(wanted.difference(names)):\n",
        new="    for name in ():\n",
        tests=(_OF_FILES + "test_a_directory_that_lost_a_file_while_it_was_written_is_refused",),
    ),
    Defect(
        name="the oldest checkpoint goes before the newest is written",
        file=_RUN,
        old="        with new_directory(path, replace=True) as directory:\n            write(directory)\n"
        "        self.keep_newest(keep)\n",
        new="        self.keep_newest(keep - 1)\n"
        "        with new_directory(path, replace=True) as directory:\n            write(directory)\n",
        tests=("training/test_run_folder.py::test_the_oldest_goes_only_after_the_newest_is_whole",),
    ),
    Defect(
        name="older checkpoints stay where a run died after its last save",
        file="training/loop.py",
        old="            run.keep_newest(plan.keep_checkpoints)\n",
        new="            pass\n",
        tests=("training/test_resume.py::test_a_run_that_died_right_after_a_save_lets_older_checkpoints_go",),
    ),
    Defect(
        name="checkpoints are put in order as words, not as numbers",
        file=_RUN,
        old="        return sorted((int(match.group(1)), entry) for match, entry in found if match)",
        new="        return [(int(match.group(1)), entry) for match, entry in\n"
        "            sorted(((match, entry) for match, entry in found if match), key=lambda pair: pair[1].name)]",
        tests=("training/test_run_folder.py::test_steps_are_numbers_however_many_digits_they_have",),
    ),
    Defect(
        name="the newest checkpoint is loaded unchecked",
        file=_RUN,
        old="            verify_directory(path)\n",
        new="            path.stat()\n",
        tests=("training/test_resume.py::test_a_damaged_newest_checkpoint_is_refused_and_the_whole_one_named",),
    ),
    Defect(
        name="a key that no setting has is passed over",
        file="runtime/json_files.py",
        old="        if key not in fields:\n"
        '            raise InvalidConfiguration(f"{where}: {key}", "unknown key", did_you_mean(key, fields))\n',
        new="        pass\n    data = {key: data[key] for key in data if key in fields}\n",
        tests=("runtime/test_strict_json.py",),
    ),
    Defect(
        name="a file of weights outside of the model's directory is read",
        file="checkpoints/tensor_files.py",
        old="if Path(name).name != name:",
        new="if False:",
        tests=("checkpoints/test_hostile_directories.py::test_an_index_names_files_of_its_own_directory_alone",),
    ),
    Defect(
        name="an archive may write outside of its own directory",
        file="checkpoints/hub.py",
        old="""if name.startswith("/") or ".." in parts or ":" in parts[0] or "\\0" in name:""",
        new="if False:",
        tests=("checkpoints/test_archives.py",),
    ),
    Defect(
        name="weights that are not finite are loaded",
        file="checkpoints/tensor_files.py",
        old="        tensor.numel()\n        and tensor.is_floating_point()\n",
        new="        False\n",
        tests=("checkpoints/test_model_directory.py::test_weights_that_are_not_finite_are_refused",),
    ),
    Defect(
        name="a part of the encoder that a file lacks is drawn at random",
        file="checkpoints/loading.py",
        old="    if missing:\n        raise DamagedData(",
        new="    if False:\n        raise DamagedData(",
        tests=("checkpoints/test_model_directory.py::test_missing_layers_are_refused",),
    ),
)
