# What an empty AWS account needs once: a private bucket, and mails about a budget.
# The machines themselves are started by SkyPilot (machines.sh).

terraform {
  required_version = ">= 1.5"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0, < 7.0"
    }
  }
}

variable "region" {
  description = "Where the bucket lies; the machines should be there as well."
  type        = string
  default     = "eu-central-1"
}

variable "bucket" {
  description = "The name of the bucket, unique in the world: SWEEP_BUCKET without s3://."
  type        = string
}

variable "mail" {
  description = "Who is told about the budget; empty: no budget."
  type        = string
  default     = ""
}

variable "monthly_budget" {
  description = "Mail is sent at half of it, at all of it, and when the forecast exceeds it. In US dollars."
  type        = number
  default     = 50
}

variable "delete_results" {
  description = "Whether `terraform destroy` may delete a bucket with results in it."
  type        = bool
  default     = false
}

provider "aws" {
  region = var.region
}

resource "aws_s3_bucket" "sweeps" {
  bucket        = var.bucket
  force_destroy = var.delete_results
}

resource "aws_s3_bucket_public_access_block" "sweeps" {
  bucket                  = aws_s3_bucket.sweeps.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_lifecycle_configuration" "sweeps" {
  bucket = aws_s3_bucket.sweeps.id

  rule {
    id     = "uploads that were cut off"
    status = "Enabled"

    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }
  }
}

resource "aws_budgets_budget" "monthly" {
  count        = var.mail == "" ? 0 : 1
  name         = "sweeps"
  budget_type  = "COST"
  limit_amount = tostring(var.monthly_budget)
  limit_unit   = "USD"
  time_unit    = "MONTHLY"

  dynamic "notification" {
    for_each = [[50, "ACTUAL"], [100, "ACTUAL"], [100, "FORECASTED"]]

    content {
      comparison_operator        = "GREATER_THAN"
      threshold                  = notification.value[0]
      threshold_type             = "PERCENTAGE"
      notification_type          = notification.value[1]
      subscriber_email_addresses = [var.mail]
    }
  }
}

output "SWEEP_BUCKET" {
  description = "For machines.env."
  value       = "s3://${aws_s3_bucket.sweeps.bucket}"
}
