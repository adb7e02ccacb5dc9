"""The functions of the package: what `albert.finetune` and the others do, and the commands of the same names."""
